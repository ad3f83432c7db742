"""Most of what a plugin can do, to copy from. To try it, copy it over app.py, and include with-session in wit/plugin.wit."""

from wit_world import exports

from polliwog import (
    Plugin, Report, basic_auth, body_part, cache, capture_json, gauge, get_cached, has_secret, json, now, ok, remaining_ms, report, secret,
    secret_part, secret_spec, send, sign, signature, store, time_zone, tls_of, utc_offset_minutes, warning,
)

DAY = 24 * 60 * 60 * 1000


def signed() -> None:
    """The host signs the body, and logs in. The plugin never sees the key."""
    signatures = [sign("v1", "hmac-sha256", key=[secret_part("key")], input=["1.", body_part()])]
    headers = {"x-signature": "v1=" + signature("v1")}
    send("/hook", method="POST", body="text", headers=headers, signatures=signatures, authentication=basic_auth("me", "key"))


def log_in() -> bool:
    """A log-in whose token the host keeps over restarts, encrypted. The plugin sees asterisks instead."""
    if not has_secret("refresh"):
        send("/login", method="POST", captures=[capture_json("refresh", "/refresh", DAY, durable=True)])
    return has_secret("refresh")


def parts() -> tuple[list[bytes], bool]:
    """Answers that are not read to their end: the head, the first bytes, and to a text."""
    answers = [send("", read=read) for read in ("none", 3, ["mail"])]
    is_secure = any(session.chain for answer in answers if (session := tls_of(answer)))
    return [answer.body for answer in answers], is_secure


def counted() -> int:
    """A counter that lasts over restarts and versions."""
    polls = int(store.get("polls") or b"0") + 1
    store.set("polls", str(polls).encode())
    return polls


def poll(target, settings) -> Report:
    signed()
    # Asked again only if it changed.
    mail = json(get_cached("", DAY))["mail"]
    cache.set("mail", bytes([mail]), DAY)
    texts, is_secure = parts()
    clock = [now() > 1e12, remaining_ms() <= target.timeout_ms, time_zone() != "", utc_offset_minutes() % 15 == 0]
    sees = [log_in(), *clock, not is_secure, texts == [b"", b'{"m', b'{"mail'], cache.get("mail") == bytes([mail])]
    why = f"poll {counted()} of limit {settings['limit']}" if all(sees) else "a value is missing"
    return report(
        [
            warning("vm", why, runs_on="rack", independent=True, valid_for_ms=DAY),
            ok("rack", link="http://rack.example/"),
            ok("old", skipped=True),
        ],
        # Removed on purpose: its alert ends.
        gone=["vm/"],
        samples=[gauge("queue_messages", mail, help="Messages.", unit="messages", dependency="vm")],
        next_poll_ms=5000,
    )


def close(target, settings) -> None:
    """The end of the session. A durable value is not among the secrets when only the host ends."""
    send("/logout", method="POST", headers={"x-refresh": secret("refresh") if has_secret("refresh") else "no refresh"})


plugin = Plugin(
    kind="{{kind}}",
    title="{{title}}",
    version="0.2.0",
    summary="Most features in one plugin",
    settings={"limit": {"type": "number", "default": 5, "description": "The limit."}},
    # Version 1 had the limit under another name.
    settings_version=2,
    migrate=lambda version, settings: {"limit": settings["old"]},
    secrets=[secret_spec("key", "the key of signatures")],
    poll=poll,
)
Definition, Poller = plugin.export(exports)
Session = plugin.export_session(exports, close)
