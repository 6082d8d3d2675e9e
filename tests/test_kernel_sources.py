"""The three source trees hold the same integer programs, and nothing that a device may round."""

import re
from pathlib import Path

import pytest

from harness.cases import Case
from harness.folders import data_root
from harness.kernels import FOLDERS, KERNELS, LANGUAGES, SUFFIXES, WHOLE, Kernel, Language

SHARED = sorted({stem for k in KERNELS if k.languages == LANGUAGES for stem in (*k.preludes, k.stem)})
PROGRAMS = [k for k in KERNELS if k.languages == LANGUAGES]
CONTROLS = [k.stem for k in KERNELS if k.control]
FILES = sorted({(lang, stem) for k in KERNELS for lang in k.languages for stem in (*k.preludes, k.stem)})
INTEGER_FILES = sorted(
    {(lang, s) for k in KERNELS if not k.control for lang in k.languages for s in (*k.preludes, k.stem)}
)
PROBES = [k.stem for k in KERNELS if k.probe]
OPERATIONS_PROBED = [r"[/%]", r"\b\w*(mul24|mad24|_sat|__fmul|__fadd|fma|rcp)\w*\b", r"\bconvert_\w+"]
"""What probes alone may hold, for it is what they probe: run-time division and remainder, 24-bit products, saturation."""

BIT_CASTS = r"\b(bitcast<(f32|u32)>|as_float|as_uint|__uint_as_float|__float_as_uint)"

PACKED_DOT = {
    "wgsl": {"s8": "sum + bitcast<u32>(dot4I8Packed(x, y))", "u8": "sum + dot4U8Packed(x, y)"},
    "cuda": {"s8": "(u32)__dp4a((int)x, (int)y, (int)sum)", "u8": "__dp4a(x, y, sum)"},
    "opencl": {"s8": "sum + (u32)dot_4x8packed_ss_int(x, y)", "u8": "sum + dot_4x8packed_uu_uint(x, y)"},
}
"""sum and the dot product of four packed bytes, as each language writes it."""

IN_GROUP = r"\b(tile|cells|levels|fresh|results|given), "
"""Memory that functions of the C languages are handed and those of WGSL see."""

CONSTANT = {
    "wgsl": r"^(?:override|const) (\w+): u32 = (\w+);",
    "cuda": r"^#define (\w+) (\w+)$",
    "opencl": r"^#define (\w+) (\w+)$",
}
ENTRY = {
    "wgsl": r"^@compute @workgroup_size\(([\d, ]+)\)\nfn (\w+)\(",
    "cuda": r'^extern "C" (__global__) void (\w+)\(',
    "opencl": r"^__kernel __attribute__\(\(reqd_work_group_size\(([\d, ]+)\)\)\) void (\w+)\(",
}
BARRIER = {"wgsl": "workgroupBarrier()", "cuda": "__syncthreads()", "opencl": "barrier(CLK_LOCAL_MEM_FENCE)"}


def read(language: Language, stem: str) -> str:
    return (data_root() / FOLDERS[language] / (stem + SUFFIXES[language])).read_text("utf-8")


def without_comments(text: str) -> str:
    """Without instructions of PTX, too, which stand in strings."""
    return re.sub(r'"[^"\n]*"', "", re.sub(r" *//[^\n]*", "", text))


def contract(text: str) -> str:
    """The header's first paragraph."""
    return text.split("\n//\n")[0].replace("\n// ", " ").removeprefix("// ")


def functions(language: Language, text: str) -> dict[str, list[str]]:
    """Each function's lines, without the words in which languages must differ: types, casts, suffixes, brackets."""
    found = {}
    pattern = r"^(?:static|extern|__kernel|@compute|fn) [^{]*?\b(\w+)\((?:[^(){]|\(\w+\))*\) (?:-> \w+ )?\{\n(.*?)^\}"
    for name, body in re.findall(pattern, without_comments(text), re.M | re.S):
        body = "" if name.startswith("own_") else body  # a built-in of this language
        body = re.sub(r"^    (__shared__|__local|const (auto|uint3) (group|lane)) .*\n", "", body, flags=re.M)
        body = body.replace(BARRIER[language], "barrier")
        body = re.sub(IN_GROUP, "", body)
        for bytes_are, written in PACKED_DOT[language].items():
            body = body.replace(written, f"dot4_{bytes_are}")
        body = re.sub(BIT_CASTS, "cast", body)
        body = re.sub(r"(\w+): array<\w+, (\w+)>;", r"\1[\2];", body)
        body = re.sub(
            r"\b(let|var|const)\b|: \w+(?= =)|\b(u32|u64|i32|i64|f32|limbs|wide|quad|(make_)?uint[24])\b", "", body
        )
        body = re.sub(r"\b(0x[0-9a-f]+|\d+)(u|lu|ul|ull)\b", r"\1", body)
        found[name] = [line for line in re.sub(r"[() ]", "", body).splitlines() if line]
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tree_holds_what_the_catalogue_names_and_nothing_else(language: Language) -> None:
    """Every source file belongs to a kernel, and every kernel has its file."""
    there = {p.name for p in (data_root() / FOLDERS[language]).iterdir() if p.is_file()}
    assert there == {stem + SUFFIXES[lang] for lang, stem in FILES if lang == language}


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.stem)
def test_entry_points_are_the_catalogue_s_with_its_workgroup_sizes(kernel: Kernel) -> None:
    """Same entry points in the same order; where a language states the workgroup size, it is the dispatched one."""
    case = Case(kernel.name, tuple((d, 32) for d in kernel.shape), kernel.distributions[0], 0)
    sizes = {p.entry: ", ".join(map(str, p.workgroup)) for p in kernel.plan(case, "split_k").passes}
    for language in kernel.languages:
        found = re.findall(ENTRY[language], read(language, kernel.stem), re.M)
        assert tuple(name for _, name in found) == kernel.entries
        if language != "cuda":
            assert {name: size for size, name in found} == sizes


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.stem)
def test_arguments_stand_in_the_catalogue_s_order(kernel: Kernel) -> None:
    """Names, order and which ones a kernel may write."""
    case = Case(kernel.name, tuple((d, 32) for d in kernel.shape), "full", 0)
    buffers = [(b.name, b.writable) for b in kernel.plan(case, "forward").buffers]
    assert kernel.writable == tuple(writable for _, writable in buffers)
    for language in kernel.languages:
        text = without_comments(read(language, kernel.stem))
        if language == "wgsl":
            bindings = re.findall(
                r"@group\(0\) @binding\((\d+)\) var<storage, (\w+)> (\w+): array<(?:u32|atomic<u32>)>;", text
            )
            assert [(name, access == "read_write") for _, access, name in bindings] == buffers
            assert [int(i) for i, _, _ in bindings] == list(range(len(buffers)))
            continue
        for arguments in re.findall(r" void \w+\(\n(.*?)\) \{", text, re.S):
            found = re.findall(r"(?:__global )?(const )?u32 \*(\w+)", arguments)
            assert [(name, not const) for const, name in found] == buffers


@pytest.mark.parametrize("stem", SHARED)
def test_constants_are_alike_in_all_languages(stem: str) -> None:
    """Compile-time constants and tile sizes: same names, same values, same order."""
    wgsl, cuda, opencl = (re.findall(CONSTANT[lang], read(lang, stem), re.M) for lang in LANGUAGES)
    assert wgsl == cuda == opencl


@pytest.mark.parametrize(("language", "stem"), [(lang, k.stem) for k in KERNELS for lang in k.languages])
def test_every_kernel_takes_schedule_known_bad_and_nonce(language: Language, stem: str) -> None:
    """The three constants that the harness sets, with a default each, so that the file is a whole program."""
    given = re.findall(CONSTANT[language], read(language, stem), re.M)
    assert given[:3] == [("SCHEDULE", "0u"), ("KNOWN_BAD", "0u"), ("NONCE", "0u")]


@pytest.mark.parametrize("stem", SHARED)
def test_comments_are_alike_in_all_languages(stem: str) -> None:
    """Contract, explanation and remarks: the same words in the same order."""
    wgsl, cuda, opencl = (re.findall(r"//( .*)?$", read(lang, stem), re.M) for lang in LANGUAGES)
    assert wgsl == cuda == opencl


@pytest.mark.parametrize("stem", SHARED)
def test_functions_are_alike_in_all_languages(stem: str) -> None:
    """Statement by statement, but for the words in which a language must differ."""
    wgsl, cuda, opencl = (functions(lang, read(lang, stem)) for lang in LANGUAGES)
    assert wgsl and all(body for name, body in wgsl.items() if not name.startswith("own_"))
    assert list(wgsl) == list(cuda) == list(opencl)
    assert wgsl == cuda
    assert wgsl == opencl


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_native_prelude_has_the_functions_of_the_limbs(language: Language) -> None:
    """The same signatures in the same order: a kernel may follow either. What no native form calls stands in the limbs alone."""
    pattern = r"^(?:static|fn) [^{]*(?= \{)"
    limbs, native = (re.findall(pattern, read(language, stem), re.M) for stem in ("int64_limbs", "int64_native"))
    own = [s for s in native if re.search(r"\b(u64_of|limbs_of)\(", s)]
    assert len(own) == 2
    assert [s for s in limbs if "i64_mul_i32(" not in s] == [s for s in native if s not in own]


def test_a_native_form_differs_from_its_base_in_the_prelude_alone() -> None:
    """Same source, passes and buffers; every kernel of the pass has one, but what only copies."""
    base = {k.name: k for k in KERNELS if k.variant == "base"}
    forms = [k for k in KERNELS if "int64_native" in k.preludes]
    for k in forms:
        limbs = base[k.name]
        assert k.variant == "int64" and k.needs == {"wgsl": ("shader-int64",)}
        assert (k.stem, k.passes, k.scratch, k.entries) == (limbs.stem, limbs.passes, limbs.scratch, limbs.entries)
        assert [p.replace("native", "limbs") for p in k.preludes] == list(limbs.preludes)
    named = WHOLE["pass_dyadic_q16"].whole
    assert named
    native = {k.name for k in KERNELS if k.variant == "int64" and k.languages == LANGUAGES}
    assert set(named.kernels) - native == {"kv_append"}


@pytest.mark.parametrize(("language", "stem"), [(lang, k.stem) for k in KERNELS for lang in k.languages])
def test_the_header_states_the_contract_and_names_the_reference(language: Language, stem: str) -> None:
    """One sentence that begins with the file's stem and ends with a reference file that exists; the control has none."""
    if stem in CONTROLS:
        assert re.fullmatch(rf"{stem}: .*: the control, so it has no reference\.", contract(read(language, stem)))
        return
    said = re.fullmatch(rf"{stem}: .*; the reference is (cpu_ref/\w+\.py)\.", contract(read(language, stem)))
    assert said
    if (Path(__file__).parent.parent / "cpu_ref").is_dir():
        assert (Path(__file__).parent.parent / said[1]).is_file()


@pytest.mark.parametrize(("language", "stem"), INTEGER_FILES)
def test_no_source_has_a_construct_that_devices_compute_differently(language: Language, stem: str) -> None:
    """No float types or literals, no division or remainder, no mul24, no saturation; no LL in OpenCL (128 bits)."""
    text = without_comments(read(language, stem))
    text = text.replace("#pragma unroll", "")
    forbidden = [
        r"\b(float|double|half|f16|f32|f64|bfloat)(\d*)\b",
        r"\d\.\d|\d[eE][+-]\d|\b\d+f\b",
        *OPERATIONS_PROBED,
    ]
    if language == "opencl":
        forbidden += [r"long long", r"\d[uU]?(ll|LL)[uU]?\b"]
    for pattern in (p for p in forbidden if stem not in PROBES or p not in OPERATIONS_PROBED):
        assert not re.search(pattern, text), pattern


@pytest.mark.parametrize(("language", "stem"), FILES)
def test_words_are_unsigned_and_literals_say_so(language: Language, stem: str) -> None:
    """Decimal literals carry a suffix, except as indices of a constant array, in vector loads and in attributes."""
    text = without_comments(read(language, stem))
    text = re.sub(r"^(@|__kernel|#if|#error|typedef).*$", "", text, flags=re.M)
    text = text.replace("i32(-2147483648)", "")  # as a literal, which some take for a wider type
    text = re.sub(r"get_\w+_id\(\d\)|\[\d\]|v(load|store)16\([^()]*\)|\bu?int\d+\b", "", text)
    bare = re.findall(r"(?<![\w.])\d+(?![\w.])", text)
    assert not bare


@pytest.mark.parametrize("kernel", PROGRAMS, ids=lambda k: k.stem)
def test_workgroup_memory_is_declared_once_and_every_barrier_stands_in_all_languages(kernel: Kernel) -> None:
    """The same arrays of the same extents, and as many barriers."""
    wgsl = dict(re.findall(r"^var<workgroup> (\w+): (.*);$", read("wgsl", kernel.stem), re.M))
    extents = {name: re.findall(r"(?<=, )\w+(?=>)", kind)[::-1] for name, kind in wgsl.items()}
    for language, word in (("cuda", "__shared__"), ("opencl", "__local")):
        declared = re.findall(rf"^    {word} \w+ (\w+)((?:\[\w+\])+);$", read(language, kernel.stem), re.M)
        assert {name: re.findall(r"\w+", dims) for name, dims in declared} == extents
    counts = {read(lang, kernel.stem).count(BARRIER[lang]) for lang in LANGUAGES}
    assert len(counts) == 1 and counts.pop() >= (2 if wgsl else 0)
