"""Channels of kind `{{kind}}`: posts each notification as JSON. Change the body to what your receiver takes."""

from wit_world import exports

from polliwog import Notifier, has_secret, post_json, secret, secret_spec


def send(channel, settings, notification) -> None:
    lines = [f"{alert.event}: {alert.title}: {alert.summary}" for alert in notification.alerts]
    if notification.omitted:
        lines.append(f"and {notification.omitted} more")
    body = {"room": settings["room"], "title": notification.alerts[0].title, "text": "\n".join(lines), "link": notification.link}
    headers = {"authorization": f"Bearer {secret('token')}"} if has_secret("token") else {}
    # A status other than 2xx is a failure, which the host tries again or gives up.
    post_json("", body, headers=headers)


plugin = Notifier(
    kind="{{kind}}",
    title="{{title}}",
    version="0.1.0",
    summary="Notifications for {{title}}",
    send=send,
    # The settings under [channel.settings], as properties of a JSON Schema.
    settings={"room": {"type": "string", "default": "", "description": "The room that the messages are for."}},
    # The host inserts the value; this code never sees it.
    secrets=[secret_spec("token", "the token of the receiver, if it needs one")],
)

# The names of the contract's interfaces.
Definition, Notifier = plugin.export(exports)
