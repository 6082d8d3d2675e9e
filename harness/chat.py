"""The chat template of a model file: a stranger's program, run by Jinja2's sandbox in a child with little time and memory.

    python -m harness.chat      a request {template, text, bos, eos} -> rendered(text), or fault(detail)

Nothing is escaped: what comes out is split into tokens and never shown as HTML, and `&lt;` would be other tokens.
"""

from typing import Any

from harness.errors import InputRefused
from harness.process import Child, ChildFault, environment, python
from harness.text import clean

SECONDS = 10.0
MEMORY = 1 << 30
TEMPLATE_LIMIT = 1 << 16
"""Characters of a template at most; the released ones have some thousand."""


def render(file: str, template: str, text: str, bos: str, eos: str) -> str:
    """One user message and the beginning of the answer; raises InputRefused where the template gives none."""
    if len(template) > TEMPLATE_LIMIT:
        raise InputRefused(f"{file}: its chat template has {len(template)} characters, at most {TEMPLATE_LIMIT}")
    try:
        with Child(python("harness.chat"), environment({}), memory_limit=MEMORY) as child:
            child.send({"template": template, "text": text, "bos": bos, "eos": eos})
            answer = child.receive(SECONDS)
    except ChildFault as e:
        raise InputRefused(f"{file}: its chat template gives no text: {e}; use --prompt without --chat") from None
    if answer.get("event") != "rendered":
        detail = clean(str(answer.get("detail")))
        raise InputRefused(f"{file}: its chat template fails: {detail}; use --prompt without --chat")
    return str(answer["text"])


def rendered(template: str, text: str, bos: str, eos: str) -> str:
    """What the template makes of it; raises whatever the template does."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    # Blocks are trimmed and loops may break: so the templates of released models are written.
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.globals["raise_exception"] = refuse
    made = sandbox.from_string(template).render(
        messages=[{"role": "user", "content": text}], add_generation_prompt=True, bos_token=bos, eos_token=eos
    )
    return made


def main() -> None:
    """Answer one request."""
    from harness.channel import Channel

    channel = Channel()
    request: dict[str, Any] = next(channel.requests())
    try:
        channel.send({"event": "rendered", "text": rendered(**request)})
    except Exception as e:
        channel.send({"event": "fault", "detail": (str(e) or type(e).__name__)[:4000]})
    channel.leave()


if __name__ == "__main__":
    main()
