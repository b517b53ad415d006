"""A server written with the official Python SDK that offers what the official conformance suite calls on a server.

It serves streamable HTTP in both eras, with a session for each handshake. The names and the texts are those that the scenarios
of the suite ask for.

Usage: python_conformance.py PORT
"""

import asyncio
import base64
import json
import secrets
import sys
import warnings
from typing import Annotated, Literal

from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

# The suite calls what the newest revision has deprecated, too.
warnings.simplefilter("ignore", MCPDeprecationWarning)

# An image of one pixel, and a sound of one sample.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
# The time between two reports of a tool, and how soon a client comes back after its stream was closed, in seconds.
STEP = 0.05
RECONNECTION = 0.1
# What is there after every other change.
CHANGING_TOOL = "test_changing_tool"
CHANGING_PROMPT = "test_changing_prompt"
CHANGING = "Comes and goes with every change."

server = MCPServer(
    "python-conformance",
    version="1",
    log_level="WARNING",
    request_state_security=RequestStateSecurity(keys=[secrets.token_bytes(32)]),
)


class StoredEvents(EventStore):
    """Keeps every event, so that a client can take a stream up again after any of them."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        if not last_event_id.isdecimal() or not 0 < int(last_event_id) <= len(self.events):
            return None
        stream, _ = self.events[int(last_event_id) - 1]
        for number, (other, message) in enumerate(self.events[int(last_event_id) :], int(last_event_id) + 1):
            # An event without a message only opens its stream.
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def text(content):
    return TextContent(type="text", text=content)


def image():
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri, mime_type, content):
    resource = TextResourceContents(uri=uri, mime_type=mime_type, text=content)
    return EmbeddedResource(type="resource", resource=resource)


# Tools that only answer.


@server.tool()
def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> list[ImageContent]:
    """Returns an image."""
    return [image()]


@server.tool()
def test_audio_content() -> list[AudioContent]:
    """Returns a sound."""
    return [AudioContent(type="audio", data=WAV, mime_type="audio/wav")]


@server.tool()
def test_embedded_resource() -> list[EmbeddedResource]:
    """Returns a resource."""
    return [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@server.tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Returns a text, an image and a resource."""
    resource = embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return [text("Multiple content types test:"), image(), resource]


@server.tool()
def test_error_handling() -> str:
    """Fails."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool()
def greet(name: str) -> str:
    """Greets somebody: the scenarios for tasks call it as a tool that is fast."""
    return f"Hello, {name}!"


@server.tool()
def slow_compute(seconds: float, label: str = "") -> str:
    """Returns at once: the scenarios for tasks call it as a tool that may become a task, which it never does here."""
    return f"Computed {label} without {seconds} seconds of work"


@server.tool()
def test_mirrored_argument(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Returns its argument, which a client repeats in a header."""
    return f"The region is {region}"


@server.tool()
def json_schema_2020_12_tool() -> str:
    """Has a schema with many keywords of JSON Schema 2020-12."""
    return "The schema of this tool is its purpose"


# The SDK derives every schema from a function, and has no public way to give another one.
server._tool_manager.get_tool("json_schema_2020_12_tool").parameters = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# Tools that send something before they answer.


@server.tool()
async def test_tool_with_logging(context: Context) -> str:
    """Logs three messages."""
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await context.info(message)
        await asyncio.sleep(STEP)
    return "Three messages were logged"


@server.tool()
async def test_logging_tool(context: Context) -> str:
    """Logs a message, which the SDK sends where the request asks for it."""
    await context.info("Logged where that is wanted")
    return "A message was logged"


@server.tool()
async def test_tool_with_progress(context: Context) -> str:
    """Reports progress three times."""
    for done in [0, 50, 100]:
        await context.report_progress(done, 100, f"{done} of 100")
        await asyncio.sleep(STEP)
    return "Progress was reported"


@server.tool()
async def test_reconnection(context: Context) -> str:
    """Closes the stream of its call before it answers."""
    await context.info("The stream of this call is about to be closed")
    await context.close_sse_stream()
    await asyncio.sleep(2 * RECONNECTION)
    return "The client came back for this"


@server.tool()
async def test_trigger_tool_change(context: Context) -> str:
    """Adds a tool or removes it, and announces that."""
    if any(tool.name == CHANGING_TOOL for tool in await server.list_tools()):
        server.remove_tool(CHANGING_TOOL)
    else:
        server.add_tool(lambda: "here", name=CHANGING_TOOL, description=CHANGING)
    await context.notify_tools_changed()
    if has_handshake(context):
        await context.session.send_tool_list_changed()
    return "The tools have changed"


@server.tool()
async def test_trigger_prompt_change(context: Context) -> str:
    """Adds a prompt or removes it, and announces that."""
    if any(prompt.name == CHANGING_PROMPT for prompt in await server.list_prompts()):
        server.remove_prompt(CHANGING_PROMPT)
    else:
        server.add_prompt(Prompt.from_function(lambda: "here", name=CHANGING_PROMPT, description=CHANGING))
    await context.notify_prompts_changed()
    if has_handshake(context):
        await context.session.send_prompt_list_changed()
    return "The prompts have changed"


def has_handshake(context):
    return context.protocol_version is not None and context.protocol_version < "2026"


# Tools that ask in the middle of their call, which a revision with a handshake allows.


@server.tool()
async def test_sampling(prompt: str, context: Context) -> str:
    """Asks the model."""
    messages = [SamplingMessage(role="user", content=text(prompt))]
    # The question belongs on the stream of the call.
    answer = await context.session.create_message(
        messages=messages, max_tokens=100, related_request_id=context.request_id
    )
    return f"LLM response: {answer.content.text}"


class Account(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Annotated[str, Field(json_schema_extra={"enum": ["active", "inactive", "pending"]})] = "active"
    verified: bool = True


def titled(word):
    titles = ["First", "Second", "Third"]
    return [{"const": f"value{number}", "title": f"{title} {word}"} for number, title in enumerate(titles, 1)]


OPTIONS = ["option1", "option2", "option3"]
ENUM_NAMES = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}


class Choices(BaseModel):
    """A choice in each of the five ways to describe one."""

    untitledSingle: Annotated[str, Field(json_schema_extra={"enum": OPTIONS})]
    titledSingle: Annotated[str, Field(json_schema_extra={"oneOf": titled("Option")})]
    legacyEnum: Annotated[str, Field(json_schema_extra=ENUM_NAMES)]
    untitledMulti: list[Literal["option1", "option2", "option3"]]
    titledMulti: Annotated[list[str], Field(json_schema_extra={"items": {"anyOf": titled("Choice")}})]


async def completed(context, message, schema):
    answer = await context.elicit(message, schema)
    content = answer.data.model_dump_json() if answer.action == "accept" else "{}"
    return f"action={answer.action}, content={content}"


@server.tool()
async def test_elicitation(message: str, context: Context) -> str:
    """Asks the user for a name and an address."""
    return f"User response: {await completed(context, message, Account)}"


@server.tool()
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Asks the user for values with defaults."""
    return f"Elicitation completed: {await completed(context, 'Please check these values', Defaults)}"


@server.tool()
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Asks the user to choose in five ways."""
    return f"Elicitation completed: {await completed(context, 'Please choose', Choices)}"


# Tools and a prompt that ask by their result, as 2026-07-28 does.


def elicit(message, name, kind="string"):
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt, most):
    messages = [SamplingMessage(role="user", content=text(prompt))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=most))


def answers(context, *keys):
    """Returns the answers to these questions, or nothing if one is missing."""
    given = context.input_responses or {}
    return [given[key] for key in keys] if all(key in given for key in keys) else None


def accepted(answer, name):
    return answer.content[name] if isinstance(answer, ElicitResult) and answer.content else None


def your_name():
    return elicit("What is your name?", "name")


@server.tool()
async def test_streaming_elicitation(context: Context) -> str | InputRequiredResult:
    """Asks for a name, where the answer may be a stream."""
    return await test_input_required_result_elicitation(context)


@server.tool()
async def test_input_required_result_elicitation(context: Context) -> str | InputRequiredResult:
    """Asks for a name."""
    if (given := answers(context, "user_name")) is None:
        return InputRequiredResult(input_requests={"user_name": your_name()})
    return f"Hello, {accepted(given[0], 'name')}!"


@server.tool()
async def test_input_required_result_sampling(context: Context) -> str | InputRequiredResult:
    """Asks the model."""
    if (given := answers(context, "capital_question")) is None:
        return InputRequiredResult(input_requests={"capital_question": sample("What is the capital of France?", 100)})
    return f"The model said: {given[0].content.text}"


@server.tool()
async def test_input_required_result_list_roots(context: Context) -> str | InputRequiredResult:
    """Asks for the roots."""
    if (given := answers(context, "client_roots")) is None:
        return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
    return "The roots: " + ", ".join(str(root.uri) for root in given[0].roots)


@server.tool()
async def test_input_required_result_multiple_inputs(context: Context) -> str | InputRequiredResult:
    """Asks for three things at once."""
    questions = {"user_name": your_name(), "greeting": sample("Generate a greeting", 50), "client_roots": ListRootsRequest()}
    if context.request_state is None or answers(context, *questions) is None:
        return InputRequiredResult(input_requests=questions, request_state="multiple")
    return "All three answers came"


def confirmed(context):
    """Asks with a state, which the SDK seals and checks."""
    if context.request_state is None or answers(context, "confirm") is None:
        question = elicit("Please confirm", "ok", "boolean")
        return InputRequiredResult(input_requests={"confirm": question}, request_state="confirm")
    return "state-ok: the answer and the state came"


@server.tool()
async def test_input_required_result_request_state(context: Context) -> str | InputRequiredResult:
    """Asks, and wants its state back."""
    return confirmed(context)


@server.tool()
async def test_input_required_result_tampered_state(context: Context) -> str | InputRequiredResult:
    """Asks, and wants its state back unchanged."""
    return confirmed(context)


@server.tool()
async def confirm_delete(filename: str, context: Context) -> str | InputRequiredResult:
    """Asks before it would delete a file: the scenarios for tasks call it as a tool that asks."""
    if answers(context, "confirm") is None:
        return InputRequiredResult(input_requests={"confirm": elicit(f"Delete {filename}?", "confirm", "boolean")})
    return f"{filename} stays where it is"


@server.tool()
async def test_input_required_result_multi_round(context: Context) -> str | InputRequiredResult:
    """Asks twice, one question after the other."""
    state = json.loads(context.request_state or "{}")
    if "name" in state and (given := answers(context, "step2")):
        return f"{state['name']} likes {accepted(given[0], 'color')}"
    if "round" in state and (given := answers(context, "step1")):
        question = elicit("Step 2: What is your favorite color?", "color")
        state = {"name": accepted(given[0], "name")}
        return InputRequiredResult(input_requests={"step2": question}, request_state=json.dumps(state))
    question = elicit("Step 1: What is your name?", "name")
    return InputRequiredResult(input_requests={"step1": question}, request_state=json.dumps({"round": 1}))


@server.tool()
async def test_input_required_result_capabilities(context: Context) -> str | InputRequiredResult:
    """Asks for what the client can answer."""
    capabilities = context.client_capabilities
    possible = {
        "elicitation": ("user_name", your_name()),
        "sampling": ("greeting", sample("Generate a greeting", 50)),
        "roots": ("client_roots", ListRootsRequest()),
    }
    questions = dict(question for name, question in possible.items() if getattr(capabilities, name, None) is not None)
    if not questions or answers(context, *questions):
        return f"The client answered {len(questions)} questions"
    return InputRequiredResult(input_requests=questions)


@server.tool()
async def test_missing_capability(context: Context) -> str:
    """Works for clients that sample."""
    if getattr(context.client_capabilities, "sampling", None) is None:
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="The client has not declared the capability `sampling`",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return "The client samples"


@server.prompt()
async def test_input_required_result_prompt(context: Context) -> str | InputRequiredResult:
    """Asks for context before it is complete."""
    if (given := answers(context, "user_context")) is None:
        question = elicit("What context should the prompt use?", "context")
        return InputRequiredResult(input_requests={"user_context": question})
    return f"Use this context: {accepted(given[0], 'context')}"


# Resources, prompts and completions.


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image."""
    return base64.b64decode(PNG)


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text to subscribe to."""
    return "Watched resource content."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    """Data by their id."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.prompt()
def test_simple_prompt() -> str:
    """Says one thing."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Repeats its arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """Embeds a resource."""
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """Shows an image."""
    return [UserMessage(image()), UserMessage("Please analyze the image above.")]


@server.completion()
async def complete(reference, argument, context):
    values = [value for value in ["paris", "park", "party"] if value.startswith(argument.value)]
    return Completion(values=values, total=len(values), has_more=False)


# The SDK has no public way to handle these three methods beside its own tools.


def handle(method, params):
    async def succeed(context, params):
        return EmptyResult()

    server._lowlevel_server.add_request_handler(method, params, succeed)


handle("logging/setLevel", SetLevelRequestParams)
handle("resources/subscribe", SubscribeRequestParams)
handle("resources/unsubscribe", UnsubscribeRequestParams)

server.run(
    transport="streamable-http",
    port=int(sys.argv[1]),
    event_store=StoredEvents(),
    retry_interval=int(1000 * RECONNECTION),
)
