"""Kind `{{kind}}`: how many messages wait in each queue, from a JSON object of names and numbers."""

from wit_world import exports

from polliwog import Plugin, Report, critical, debug, gauge, get, json, number, ok, record, warning


def poll(target, settings) -> Report:
    # The target's own URL. Errors, and statuses other than 2xx, become the failure that stands for them.
    queues = {name: number(value) for name, value in record(json(get(""))).items()}
    debug(f"{len(queues)} queues")
    return Report(
        dependencies=[judge(name, waiting, settings) for name, waiting in queues.items()],
        kept=[],
        samples=[gauge("queue_messages", waiting, queue=name) for name, waiting in queues.items()],
        warnings=[],
    )


def judge(name: str, waiting: float, settings):
    said = f"{waiting:g} messages wait"
    if waiting > settings["critical"]:
        return critical(name, said, kind="queue")
    if waiting > settings["warning"]:
        return warning(name, said, kind="queue")
    return ok(name, kind="queue")


def check(settings) -> list[str]:
    return ["warning is above critical: swap them"] if settings["warning"] > settings["critical"] else []


plugin = Plugin(
    kind="{{kind}}",
    title="{{title}}",
    version="0.1.0",
    summary="How many messages wait in each queue",
    poll=poll,
    check=check,
    # What an operator writes under [target.settings], as properties of a JSON Schema.
    settings={
        "warning": {"type": "number", "default": 100, "description": "More messages than this are a warning."},
        "critical": {"type": "number", "default": 1000, "description": "More messages than this are critical."},
    },
)

Poller = plugin.export(exports.Poller)
