"""Where the text that a template uses comes from decides what it may reach."""

from __future__ import annotations

import pytest

from modelglass.formats.jinja.chat_templates import judge
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

SOURCE = Source(lambda at, length: b"", 0, file="template")
NAME = "'__cl' ~ 'ass__'"


def judged(text: str) -> dict[str, str]:
    reading = Reading(thorough=True, limits=Limits())
    judge(text, SOURCE, reading)
    return {finding.code: finding.level for finding in reading.findings[1:]}


# Each gives a text of the template's own; what is at that name of the data is not what it seems.
GIVING = {
    "a macro": "{% macro c() %}__class__{% endmacro %}{{ messages[c()] }}",
    "a macro with parts": "{% macro c() %}{{ '__cl' }}ass__{% endmacro %}{{ messages[c()] }}",
    "a block that is set": "{% set x %}__class__{% endset %}{{ messages[x] }}",
    "a filtered block": "{% set x | lower %}__CLASS__{% endset %}{{ messages[x] }}",
    "a caller": "{% macro m() %}{{ messages[caller()] }}{% endmacro %}{% call m() %}__class__{% endcall %}",
    "more arguments": f"{{% macro m() %}}{{{{ messages[varargs[0]] }}}}{{% endmacro %}}{{{{ m({NAME}) }}}}",
    "more names": f"{{% macro m() %}}{{{{ messages[kwargs.x] }}}}{{% endmacro %}}{{{{ m(x={NAME}) }}}}",
    "a block": "{% block b %}__class__{% endblock %}{{ messages[self.b()] }}",
    "turns of a loop": f"{{% for i in [1] %}}{{{{ messages[loop.cycle({NAME})] }}}}{{% endfor %}}",
    "the turn before": f"{{% for n in [{NAME}, 1] %}}{{{{ messages[loop.previtem] }}}}{{% endfor %}}",
    "a cycler": f"{{{{ messages[cycler({NAME}).next()] }}}}",
    "a joiner": f"{{% set j = joiner({NAME}) %}}{{{{ j() }}}}{{{{ messages[j()] }}}}",
    "a namespace": f"{{% set ns = namespace({{'a': {NAME}}}) %}}{{{{ messages[ns.a] }}}}",
    "a namespace by key": f"{{% set ns = namespace(a={NAME}) %}}{{{{ messages[ns['a']] }}}}",
    "its second name": f"{{% set ns = namespace(a={NAME}) %}}{{% set b = ns %}}{{{{ messages[b.a] }}}}",
    "a dict of pairs": f"{{{{ messages[dict([('a', {NAME})]).a] }}}}",
    "get": f"{{{{ messages[{{'a': {NAME}}}.get('a')] }}}}",
    "get of data": f"{{{{ messages[tools.get('a', {NAME})] }}}}",
    "pop": f"{{{{ messages[[{NAME}].pop()] }}}}",
    "values": f"{{% for k in {{'a': {NAME}}}.values() %}}{{{{ messages[k] }}}}{{% endfor %}}",
    "items": f"{{% for k, v in {{'a': {NAME}}}|items %}}{{{{ messages[v] }}}}{{% endfor %}}",
    "a default by name": f"{{{{ messages[tools|default(default_value={NAME})] }}}}",
    "a default of map": f"{{{{ messages[tools|map(attribute='x', default={NAME})|first] }}}}",
    "the start of a sum": f"{{{{ messages[tools|sum(start={NAME})] }}}}",
    "an end": f"{{{{ messages[tools|truncate(0, end={NAME}, leeway=0)] }}}}",
    "an indent": f"{{{{ messages[tools|indent({NAME}, true)] }}}}",
    "a filling": f"{{{{ messages[(tools|batch(2, {NAME})|first)[1]] }}}}",
    "a date": f"{{{{ messages[strftime_now({NAME})] }}}}",
    "any function": f"{{{{ messages[tools.method({NAME})] }}}}",
    "a special token": "{{ messages[bos_token][eos_token] }}",
    "a token of its own": "{{ messages[some_name] }}",
    "a part of a token": "{{ messages[some_name.split('|')[1]] }}",
    "a token by another name": "{% set k = unk_token %}{{ messages[k] }}",
    "a name set elsewhere": "{% if x %}{% set k = 1 %}{% endif %}{{ messages[k] }}",
    "a name set on one of the ways": "{% if x %}{% set k = 1 %}{% else %}{{ messages[k] }}{% endif %}",
    "a name set to itself": "{% set k = k %}{{ messages[k] }}",
    "a name set later": "{{ messages[k] }}{% set k = 1 %}",
    "a name of a loop, after it": "{% for k in [1] %}{% endfor %}{{ messages[k] }}",
    "a name of a macro, after it": "{% macro m(k) %}{% endmacro %}{{ messages[k] }}",
    "a name of a with, after it": "{% with k = 1 %}{% endwith %}{{ messages[k] }}",
    "format by key": "{{ '{0.__class__}'['format'](messages) }}",
    "format by filter": "{{ ('{0.__class__}'|attr('format'))(messages) }}",
    "format of a token": "{{ bos_token.format(messages) }}",
    "format of a macro": "{% macro f() %}{0.__class__}{% endmacro %}{{ f().format(messages) }}",
    "format for each": "{{ ['{0.__class__}']|map('attr', 'format')|list }}",
    "a function behind or": "{{ (cycler or 1)['y'] }}",
    "a function in a list": "{{ [cycler][0].x }}",
    "a function set to itself": "{% set cycler = cycler %}{{ cycler.x }}",
}  # fmt: skip


@pytest.mark.parametrize("text", GIVING.values(), ids=list(GIVING))
def test_a_name_from_anywhere_but_the_data_is_told(text: str) -> None:
    assert judged(text).keys() - {"template.name"}


ENDLESS = [
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%*d'|format(1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "{{ ('a,' * 900)|replace('a', 'b' * 100000) }}",
    "{% for i in range(90000) %}{% set ns.x = ns.x ~ 'a' * 500 %}{% endfor %}",
    "{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}",
]


@pytest.mark.parametrize("text", ENDLESS)
def test_widths_and_growth_without_end_are_told(text: str) -> None:
    assert judged(text) == {"template.exhausts": "notice"}


# The styles of well-known families, as they are written.
GENUINE = {
    "chatml": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "llama-2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}
{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "llama-3.1": """{{- bos_token }}{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}{%- if messages[0]['role'] == 'system' %}
{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}
{%- set system_message = "" %}{%- endif %}{%- if builtin_tools is defined or tools is not none %}
{{- "Environment: ipython\\n" }}{%- endif %}{%- if builtin_tools is defined %}
{{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}{%- endif %}
{%- if tools is not none and not tools_in_user_message %}{%- for t in tools %}{{- t | tojson(indent=4) }}
{{- "\\n\\n" }}{%- endfor %}{%- endif %}{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- elif 'tool_calls' in message %}{%- if not message.tool_calls|length == 1 %}
{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
{%- set tool_call = message.tool_calls[0].function %}
{%- if builtin_tools is defined and tool_call.name in builtin_tools %}
{{- "<|python_tag|>" + tool_call.name + ".call(" }}{%- for arg_name, arg_val in tool_call.arguments | items %}
{{- arg_name + '="' + arg_val + '"' }}{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}{%- endif %}
{%- endif %}{%- endfor %}""",
    "mistral": """{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}
{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}{%- set ns.index = 0 %}{%- for message in loop_messages %}
{%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
{%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("roles must alternate") }}
{%- endif %}{%- set ns.index = ns.index + 1 %}{%- endif %}{%- endfor %}{{- bos_token }}
{%- for message in loop_messages %}{%- if message["role"] == "user" %}
{%- if tools is not none and (message == user_messages[-1]) %}{{- "[AVAILABLE_TOOLS] [" }}{%- for tool in tools %}
{%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
{%- for key, val in tool.items() if key != "return" %}{%- if val is string %}
{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
{%- if not loop.last %}{{- ", " }}{%- endif %}{%- endfor %}{%- endfor %}{%- endif %}{%- endif %}{%- endfor %}""",
    "gemma": """{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- if messages[0]['content'] is string -%}
{%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}{%- else -%}
{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
{%- set loop_messages = messages[1:] -%}{%- else -%}{%- set first_user_prefix = "" -%}
{%- set loop_messages = messages -%}{%- endif -%}{%- for message in loop_messages -%}
{%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}
{%- endif -%}{{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
{%- for item in message['content'] -%}{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}{%- endfor -%}""",
    "qwen-3": """{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
{%- endif %}{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}
{%- if ns.multi_step_tool and message.role == "user" and message.content is string %}
{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- if message.content is string %}{%- set content = message.content %}{%- else %}
{%- set content = '' %}{%- endif %}{%- set reasoning_content = '' %}{%- if '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{%- endif %}{%- if loop.index0 > ns.last_query_index %}
{{- '<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}{%- endif %}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
{{ messages[ns.last_query_index].content }}{%- endfor %}""",
    "qwen-coder": """{% macro render_extra_keys(json_dict, handled_keys) %}{%- if json_dict is mapping %}
{%- for json_key in json_dict if json_key not in handled_keys %}{%- if json_dict[json_key] is mapping %}
{{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}{%- else %}
{{-'\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}{%- endif %}{%- endfor %}
{%- endif %}{% endmacro %}{%- for tool in tools %}{%- set handled_keys = ['type', 'properties'] %}
{%- for param_name, param_fields in tool.parameters.properties|items %}
{{- render_extra_keys(param_fields, handled_keys) }}{%- endfor %}{%- endfor %}""",
    "deepseek": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = message['content'] %}
{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}
{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}
{%- for tool in message['tool_calls']%}{{'<tool>' + tool['type'] + tool['function']['name'] + '\\n```json\\n' +
tool['function']['arguments']}}{%- endfor %}{%- endif %}{% set content = message['content'] %}
{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{%- endfor -%}""",
    "phi": """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and
message['tools'] is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' +
message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] +
'<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}
{% endif %}""",
    "command-r": """{%- macro json_to_python_type(json_spec) %}{%- set basic_type_map = {"string": "str",
"number": "float", "integer": "int", "boolean": "bool"} %}{%- if basic_type_map[json_spec.type] is defined %}
{{- basic_type_map[json_spec.type] }}{%- elif json_spec.type == "array" %}
{{- "List[" + json_to_python_type(json_spec.items) + "]"}}{%- elif json_spec.type is iterable %}{{- "Union[" }}
{%- for t in json_spec.type %}{{- json_to_python_type({"type": t}) }}{%- if not loop.last %}{{- "," }}{%- endif %}
{%- endfor %}{{- "]" }}{%- else %}{{- "Any" }}{%- endif %}{%- endmacro %}
{%- macro old_tool_parser(tools) %}{%- for tool in tools %}{{- 'def ' + tool.name + '(' }}
{%- for param_name, param_fields in tool.parameter_definitions|items %}
{{- param_name + ': ' + json_to_python_type(param_fields) }}{%- endfor %}{%- endfor %}{%- endmacro %}
{{ bos_token }}{{ old_tool_parser(tools) }}{%- for message in messages %}
{{- message.tool_calls|tojson(indent=4) }}{%- endfor %}""",
    "gpt-oss": """{%- macro render_typescript_type(param_spec, required_params, is_nullable=false) -%}
{%- if param_spec.type == "array" -%}{%- if param_spec['items'] -%}
{%- set inner_type = render_typescript_type(param_spec['items'], required_params) -%}{%- if inner_type|length > 50 -%}
{{- "any[]" }}{%- else -%}{{- inner_type + "[]" }}{%- endif -%}{%- endif -%}
{%- elif param_spec.type is iterable and param_spec.type is not string -%}{{- param_spec.type | join(" | ") }}
{%- elif param_spec.oneOf -%}{%- for variant in param_spec.oneOf -%}{%- if loop.index0 > 0 -%}{{- " | " }}
{%- endif -%}{{- render_typescript_type(variant, required_params) }}{%- endfor -%}{%- endif -%}{%- endmacro -%}
{%- if model_identity is not defined %}{%- set model_identity = "You are ChatGPT." %}{%- endif %}
{{- model_identity + "\\nCurrent date: " + strftime_now("%Y-%m-%d") }}{%- set loop_messages = messages[1:] %}
{%- for message in loop_messages -%}{%- set future = namespace(found=false) %}
{%- for later in loop_messages[loop.index:] %}{%- if later.role == 'assistant' %}{%- set future.found = true %}
{%- endif %}{%- endfor %}{%- endfor -%}""",
    "indices": """{% if messages[0].role == 'system' %}{% set offset = 1 %}{% else %}{% set offset = 0 %}{% endif %}
{% set names = {'user': 'U', 'assistant': 'A'} %}{% for i in range(offset, messages|length) %}
{{ names[messages[i].role] }}{{ names[messages[i].get('role', 'user')] }}{{ messages[i + offset].content }}
{% if loop.previtem is defined and loop.nextitem %}{% endif %}{% endfor %}""",
}


@pytest.mark.parametrize("text", GENUINE.values(), ids=list(GENUINE))
def test_templates_of_well_known_families_are_quiet(text: str) -> None:
    assert judged(text) == {}
