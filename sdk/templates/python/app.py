"""Kind `{{kind}}`: how many messages wait in each queue, from a JSON object of names and numbers."""

from wit_world import exports

from polliwog import Plugin, Report, critical, debug, gauge, get, json, number, ok, problem, record, report, warning


def poll(target, settings) -> Report:
    # Request the target's URL. Errors and statuses other than 2xx become failures.
    queues = {name: number(value) for name, value in record(json(get(""))).items()}
    debug(f"{len(queues)} queues")
    return report(
        [evaluate(name, waiting, settings) for name, waiting in queues.items()],
        samples=[gauge("queue_messages", waiting, {"queue": name}, dependency=name) for name, waiting in queues.items()],
    )


def evaluate(name: str, waiting: float, settings):
    message = f"{waiting:g} messages wait"
    if waiting > settings["critical"]:
        return critical(name, message, kind="queue")
    if waiting > settings["warning"]:
        return warning(name, message, kind="queue")
    return ok(name, kind="queue")


def check(settings):
    return [problem("/warning", "it is above critical: swap them")] if settings["warning"] > settings["critical"] else []


plugin = Plugin(
    kind="{{kind}}",
    title="{{title}}",
    version="0.1.0",
    summary="How many messages wait in each queue",
    poll=poll,
    check=check,
    # The settings under [target.settings], as properties of a JSON Schema.
    settings={
        "warning": {"type": "number", "default": 100, "description": "More messages than this are a warning."},
        "critical": {"type": "number", "default": 1000, "description": "More messages than this are critical."},
    },
)

# The names of the contract's interfaces.
Definition, Poller = plugin.export(exports)
