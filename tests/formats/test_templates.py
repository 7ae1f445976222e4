"""Chat templates are judged by what they reach; nothing of them is rendered."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from hostile.gguf_files import STRING, model, pair, string
from modelglass.formats.jinja.chat_templates import judge
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.scan.scan import scan
from modelglass.formats.source import Source

SOURCE = Source(lambda at, length: b"", 0, file="template")


def judged(text: str, **limits: int) -> dict[str, str]:
    """The codes that are told of a template, with their levels."""
    reading = Reading(thorough=True, limits=Limits(**limits))
    judge(text, SOURCE, reading)
    assert (reading.findings[0].code, reading.findings[0].level) == ("code.chat-template", "info")
    return {finding.code: finding.level for finding in reading.findings[1:]}


LEAVING = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ messages[0]['__init__']['__globals__'] }}",
    "{{ ''['\\x5f\\x5fclass\\x5f\\x5f'] }}",
    "{{ ''['\\u005f\\u005fclass\\u005f\\u005f'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ ''|attr(name='__class__') }}",
    "{{ ''|attr('__cl' ~ 'ass__') }}",
    "{{ ''|attr('__cl' + 'ass__') }}",
    "{{ ''|attr('__cl' 'ass__') }}",
    "{{ ''|attr(['__', 'class', '__']|join) }}",
    "{{ ''|attr('__'.join(['', 'class', ''])) }}",
    "{{ ''|attr('__ssalc__'|reverse) }}",
    "{{ ''|attr('__ssalc__'[::-1]) }}",
    "{{ ''|attr('x__class__x'[1:-1]) }}",
    "{{ ''|attr('--class--'.replace('-', '_')) }}",
    "{{ ''|attr('--class--'|replace('-', '_')) }}",
    "{{ ''|attr('%c%cclass%c%c'|format(95, 95, 95, 95)) }}",
    "{{ ''|attr('%s%sclass__' % ('_', '_')) }}",
    "{{ ''|attr('{0}{0}class{0}{0}'.format('_')) }}",
    "{{ ''|attr('__CLASS__'|lower) }}",
    "{{ ''|attr('  __class__ '|trim) }}",
    "{{ ''|attr('__class__,x'.split(',')[0]) }}",
    "{{ ''|attr(('_' * 2) ~ 'class' ~ '_' * 2) }}",
    "{{ ''|attr(dict(__class__=1)|list|first) }}",
    "{{ ''|attr(dict(__cla=1, ss__=2)|join) }}",
    "{{ ''|attr({'a': '__cl' ~ 'ass__'}['a']) }}",
    "{{ ''|attr({'a': '__cl' ~ 'ass__'}.a or '') }}",
    "{% set a = '__cl' %}{% set b = a ~ 'ass__' %}{{ ''|attr(b) }}",
    "{% set a, b = '__cl', 'ass__' %}{{ ''[a ~ b] }}",
    "{% with a = '__class__' %}{{ ''[a] }}{% endwith %}",
    "{% set ns = namespace(n='__cl' ~ 'ass__') %}{{ ''[ns.n] }}",
    "{% for n in ['__cl' ~ 'ass__', '__mro__'] %}{{ ''|attr(n) }}{% endfor %}",
    "{% set l = [] %}{% set _ = l.append('__cl' ~ 'ass__') %}{{ ''[l[0]] }}",
    "{% macro m(a) %}{{ ''|attr(a) }}{% endmacro %}{{ m('__cl' ~ 'ass__') }}",
    "{% macro m(a='__cl' ~ 'ass__') %}{{ ''[a] }}{% endmacro %}{{ m() }}",
    "{% filter attr('__class__') %}x{% endfilter %}",
    "{{ messages|map(attribute='__class__')|list }}",
    "{{ messages|map(attribute='a.__class__.x')|list }}",
    "{{ messages|map('attr', '__class__')|list }}",
    "{{ messages|selectattr('__class__')|list }}",
    "{{ messages|groupby('__class__') }}",
    "{{ messages|sort(attribute='__class__') }}",
    "{{ messages|join(',', attribute='__class__') }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ joiner.__init__ }}",
    "{{ lipsum.__globals__['os'] }}",
    "{{ namespace.__init__ }}",
    "{% set c = cycler %}{{ c['__ini' ~ 't__'] }}",
    "{{ self._TemplateReference__context }}",
    "{{ self['_TemplateReference' ~ '__context'] }}",
    "{{ loop._iterator }}",
    "{{ raise_exception.__globals__ }}",
    "{{ (messages|map('upper')).gi_frame.f_globals }}",
    "{{ x.mro() }}",
    "{{ x.func_globals }}",
    "{{ '{0.__class__}'.format(x) }}",
    "{{ '{0[__globals__]}'.format(x) }}",
    "{{ '{x.__class__}'.format_map(y) }}",
    "{{ __builtins__ }}",
    "{% if ''.__class__ %}{% endif %}",
    "{% for x in ''.__class__ %}{% endfor %}",
    "{{ x if y else z.__class__ }}",
    "{% include '/etc/passwd' %}",
    "{% include '../../secret' %}",
    "{% set x %}{{ ''.__class__ }}{% endset %}",
    "{% call(x) m() %}{{ x.__class__ }}{% endcall %}",
    "{% generation %}{{ ''.__class__ }}{% endgeneration %}",
    "{% block b %}{{ ''.__class__ }}{% endblock %}",
    "{{ x.__ｃlass__ }}",
]


@pytest.mark.parametrize("text", LEAVING)
def test_leaving_the_sandbox_is_high(text: str) -> None:
    assert "high" in judged(text).values()


NOTICED = {
    "template.computed": [
        "{% set ns = namespace(s='') %}{% for c in ['_', '_', 'c'] %}{% set ns.s = ns.s ~ c %}{% endfor %}"
        "{{ messages[ns.s] }}",
        "{{ ''|attr(x) }}",
        "{{ messages|attr(x ~ y) }}",
        "{{ ''[x] }}",
        "{{ cycler[x] }}",
        "{{ messages[(lipsum|string)[3] ~ x] }}",
        "{{ messages['__' ~ x] }}",
        "{{ messages|map(attribute='_' ~ x) }}",
        "{{ messages|attr(*x) }}",
        "{{ ('{0._' ~ x ~ '}').format(y) }}",
        "{{ messages[['_', x]|join] }}",
        "{{ messages['a'|unknown] }}",
        "{{ messages['a'.encode('rot13')] }}",
    ],
    "template.other": [
        "{% include 'x.jinja' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% include x %}",
        "{% include ['a', 'b'] ignore missing %}",
    ],
    "template.exhausts": [
        "{% for i in range(10000000) %}{% endfor %}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% set n = 10 ** 9 %}{% for i in range(n) %}{% endfor %}",
        "{% for i in range(50000) %}{% for j in range(50000) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 1000000000 * [0] }}",
        "{% set a = 'x' * 5000 %}{% set b = a * 5000 %}{{ b }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ 10 ** 1000000 }}",
        "{% set x = 'ab' %}{% for i in range(40) %}{% set x = x ~ x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for m in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'x'.ljust(1000000000) }}",
        "{{ 'x'|center(1000000000) }}",
        "{{ lipsum(n=10000000) }}",
    ],
    "template.object": ["{{ cycler.anything }}", "{{ lipsum.anything() }}", "{{ range.anything }}"],
    "template.python": ["{{ os.popen('id') }}", "{{ eval('1') }}", "{{ open('x').read() }}"],
    "template.private": ["{{ messages._private }}"],
    "template.name": ["{% set x = '__class__' %}"],
    "template.unjudged": ["{% if %}", "{{ x", "{% unknown %}", "{{ " + "9" * 5000 + " }}", "{% trans %}"],
}


@pytest.mark.parametrize(("code", "text"), [(code, text) for code in NOTICED for text in NOTICED[code]])
def test_what_goes_beyond_data_is_noticed(code: str, text: str) -> None:
    assert judged(text)[code] == "notice"


CHAT_ML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
    "You are a helpful assistant.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message"
    "['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}"
)
LLAMA = (
    "{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y')"
    " %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}{%- if messages[0]['role'] == 'system' "
    "%}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set "
    "system_message = '' %}{%- endif %}{% for t in tools %}{{- t | tojson(indent=4) }}{% endfor %}{%- for arg_name, "
    "arg_val in tool_call.arguments | items %}{{- arg_name + '=\"' + arg_val + '\"' }}{%- if not loop.last %}{{- ', '"
    " }}{%- endif %}{%- endfor %}{{ raise_exception('only one tool call') }}"
)
QWEN = (
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages"
    "[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == "
    "'user' and not (message.content.startswith('<tool_response>') and message.content.endswith('x')) %}{%- set "
    "ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{%- for message in "
    "messages %}{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}{{ messages[loop.index0 - 1]"
    ".role }}{{ messages[ns.last_query_index].content }}{%- endfor %}"
)
DEEPSEEK = (
    "{% set ns = namespace(is_first=false, system_prompt='') %}{%- for message in messages %}{%- if message['role'] "
    "== 'system' %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- "
    "endfor %}{{ bos_token }}{{ ns.system_prompt }}{% set content = content.split('</think>')[-1] %}"
)
MACROS = (
    "{%- macro render(param, required) -%}{%- if param.type == 'array' -%}{{ render(param['items'], false) }}[]{%- "
    "elif param.type is string and param.type in ['a', 'b'] -%}{{ {'string': 'str', 'number': 'float'}[param.type] "
    "}}{%- elif param.type is mapping -%}{%- for key, value in param.items() -%}{{ param[key] }}{{ '\\n' + '  ' * 2 "
    "}}{%- endfor -%}{%- endif -%}{%- endmacro -%}{{ tools|map(attribute='function')|map(attribute='name')|join(', ') "
    "}}{{ messages|selectattr('role', 'equalto', 'system')|list|first }}{% break %}{% do x %}"
    "{% generation %}{{ message['content'] | default('', true) }}{% endgeneration %}{{ '%s: %d' | format(a, 1) }}"
)


@pytest.mark.parametrize("text", ["", "no program at all", CHAT_ML, LLAMA, QWEN, DEEPSEEK, MACROS])
def test_genuine_templates_are_quiet(text: str) -> None:
    assert judged(text) == {}


def test_what_is_too_large_is_not_called_clean() -> None:
    assert judged("x" * 2_000, template_nchars=1_000) == {"limit": "limit"}
    assert judged("{{ " + "(" * 100_000 + " }}") == {"limit": "limit"}
    assert judged("{{ x.y }}" * 60_000) == {"limit": "limit"}
    reading = Reading(thorough=True, limits=Limits(template_nchars=1_000))
    for _ in range(100):
        judge("x", SOURCE, reading)
    assert [finding.level for finding in reading.findings].count("limit") == 1


@pytest.mark.parametrize(
    "piece",
    [
        "{{ a.b }}",
        "{% set a = a ~ 'x' %}",
        "{{ a|f }}",
        "{{ [[1]] }}",
        "{% if a %}{% endif %}",
        "{{",
        "{#",
        "1_",
    ],
)
def test_time_is_bounded(piece: str) -> None:
    start = time.process_time()
    judged(piece * (200_000 // len(piece)))
    judged(
        "{% set x = '" + "ab" * 900 + "' %}" + "{% set x = x.split('a')|join('b')|replace('b', 'cc') %}" * 500
    )
    judged("{{ x" + piece.strip("{}% ")[:3] * 20_000 + " }}")
    assert time.process_time() - start < 15


def test_long_chains_need_no_stack() -> None:
    assert judged("{{ x" + ".a" * 40_000 + ".__class__ }}")["template.escape"] == "high"
    assert judged("{{ ''|attr('__' " + "+ 'a' " * 1_000 + ") }}")["template.escape"] == "high"


EVIL = "{{ cycler.__init__.__globals__.os.popen('id').read() }}"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", json.dumps({"chat_template": EVIL})),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": "tool_use", "template": EVIL}]})),
        ("chat_template.json", json.dumps({"chat_template": {"default": "{{ x }}", "other": EVIL}})),
        ("processor_config.json", json.dumps({"chat_template": EVIL})),
        ("tokenizer_config.json", json.dumps({"chat_template": ["x"] * 500 + [EVIL]})),
        ("chat_template.jinja", EVIL),
        ("CHAT_TEMPLATE.JINJA", "\ufeff" + EVIL),
        ("chat_template.jinja2", EVIL),
        ("x.j2", EVIL),
        ("additional_chat_templates/tool_use.jinja", EVIL),
        ("config.yaml", f'chat_template: "{EVIL}"'),
        ("tokenizer_config.json", " " * 5_000 + json.dumps({"chat_template": EVIL})),
    ],
)
def test_templates_are_found_wherever_they_are(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        findings = scan([path], Limits(), lambda text: None).findings
        assert "template.escape" in {finding.code for finding in findings if finding.level == "high"}


@pytest.mark.parametrize("key", ["tokenizer.chat_template", "tokenizer.chat_template.tool_use"])
def test_templates_of_gguf_files(tmp_path: Path, key: str) -> None:
    path = tmp_path / "model.gguf"
    for filler in ("", "{# " + "x" * 100_000 + " #}"):  # more than is kept of a text
        path.write_bytes(model(pair(key, STRING, string(filler + EVIL))))
        findings = scan([path], Limits(), lambda text: None).findings
        assert ("template.escape", "high") in [(finding.code, finding.level) for finding in findings]
        assert {finding.details["key"] for finding in findings} == {key}


def test_python_files_of_a_folder_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "modeling_x.py").write_text("import os\n")
    (finding,) = scan([tmp_path], Limits(), lambda text: None).findings
    assert (finding.code, finding.level) == ("code.python", "info")


PIECES = st.sampled_from(
    [
        *(
            "{{ ",
            " }}",
            "{% ",
            " %}",
            "x",
            "'a'",
            "1",
            ".b",
            "[",
            "]",
            "(",
            ")",
            "|",
            "attr",
            "~",
            "+",
            "**",
            "*",
        ),
        *(
            "{% set x = ",
            "{% for x in ",
            "{% endfor %}",
            "{% if x %}",
            "{% endif %}",
            "join",
            "range",
            "dict",
        ),
        *(
            "'__class__'",
            ", ",
            "=",
            "cycler",
            "namespace",
            ":",
            "{",
            "}",
            "if",
            "else",
            "%",
            "format",
            "lipsum",
        ),
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=20).map(" ".join))
def test_any_text_gives_an_answer(text: str) -> None:
    judged(text)
