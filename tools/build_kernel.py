"""Assemble the engine's matrix product, tools/kernel/gemm.wat, into WebAssembly.

    python tools/build_kernel.py            write course_utils/widgets/gemm.wasm
    python tools/build_kernel.py --check    say whether it is what the source makes

The assembler below knows the WebAssembly text format as far as the kernel uses it: one
module of one function, every instruction folded into parentheses. It needs nothing
beside Python, so whoever changes the kernel needs no toolchain. It makes the bytes that
wat2wasm makes of the same text.

Source: WebAssembly core specification 2.0, chapters 5 (binary) and 6 (text format).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tools/kernel/gemm.wat"
KERNEL = ROOT / "course_utils/widgets/gemm.wasm"

Form: TypeAlias = "str | list[Form]"

TYPES = {"i32": 0x7F, "v128": 0x7B}
VOID = 0x40
LOOP, END, BRANCH_IF = 0x03, 0x0B, 0x0D
LOCALS = {"local.get": 0x20, "local.set": 0x21, "local.tee": 0x22}
I32_CONST = 0x41
PLAIN = {"i32.lt_u": 0x49, "i32.add": 0x6A, "i32.sub": 0x6B, "i32.mul": 0x6C}

# These stand behind a prefix of their own; of a memory's instructions, the alignment is
# given as the power of two that the format takes when the text names none.
VECTOR = 0xFD
MEMORY = {"v128.load": (0, 4), "v128.load32_splat": (9, 2), "v128.store": (11, 4)}
V128_CONST = 12
LANES = {"f32x4.add": 228, "f32x4.mul": 230}


class KernelError(ValueError):
    """The text is not one that this assembler knows."""


def unsigned(value: int) -> bytes:
    """LEB128: seven bits a byte, the lowest first."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def signed(value: int) -> bytes:
    """LEB128 whose last byte's highest bit is the sign."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        done = value == (-1 if low & 0x40 else 0)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def parse(text: str) -> Form:
    """Read the one parenthesised form of a text as nested lists of words."""
    words = re.findall(r';;[^\n]*|[()]|"[^"]*"|[^\s()";]+', text)
    stack: list[list[Form]] = [[]]
    for word in words:
        if word.startswith(";;"):
            continue
        if word == "(":
            stack.append([])
        elif word != ")":
            stack[-1].append(word)
        elif len(stack) > 1:
            form = stack.pop()
            stack[-1].append(form)
        else:
            raise KernelError("a parenthesis is closed that was not opened")
    if len(stack) > 1:
        raise KernelError(f"{len(stack) - 1} parentheses are not closed")
    if len(stack[0]) != 1:
        raise KernelError(f"there are {len(stack[0])} forms; expected one module")
    return stack[0][0]


def vector(items: Sequence[bytes]) -> bytes:
    """How many there are, then each."""
    return unsigned(len(items)) + b"".join(items)


def section(number: int, items: Sequence[bytes]) -> bytes:
    """One of the parts that a module consists of."""
    body = vector(items)
    return bytes([number]) + unsigned(len(body)) + body


def name(word: Form) -> bytes:
    """A quoted name, with its length."""
    raw = str(word).strip('"').encode()
    return unsigned(len(raw)) + raw


def instruction(form: Form, names: dict[str, int], labels: tuple[str, ...]) -> bytes:
    """Assemble one folded instruction: what it takes, then itself."""
    if isinstance(form, str):
        raise KernelError(f"{form} stands alone; fold it into parentheses")
    match form:
        case ["loop", str(label), *body]:
            inside = body_of(body, names, (label, *labels))
            return bytes([LOOP, VOID]) + inside + bytes([END])
        case ["br_if", str(label), condition]:
            if label not in labels:
                raise KernelError(f"br_if {label} stands in no such loop")
            target = unsigned(labels.index(label))
            taken = instruction(condition, names, labels)
            return taken + bytes([BRANCH_IF]) + target
        case [str(op), str(local), *taken] if op in LOCALS:
            if local not in names:
                raise KernelError(f"{op} {local}: there is no such local")
            code = bytes([LOCALS[op]]) + unsigned(names[local])
            return body_of(taken, names, labels) + code
        case ["i32.const", str(number)]:
            return bytes([I32_CONST]) + signed(int(number))
        case ["v128.const", "i32x4", *lanes] if len(lanes) == 4:
            raw = b"".join(int(str(x)).to_bytes(4, "little") for x in lanes)
            return bytes([VECTOR, V128_CONST]) + raw
        case [str(op), *taken] if op in MEMORY:
            offset = 0
            if taken and str(taken[0]).startswith("offset="):
                offset = int(str(taken.pop(0)).removeprefix("offset="))
            code_of, alignment = MEMORY[op]
            code = bytes([VECTOR, code_of]) + unsigned(alignment) + unsigned(offset)
            return body_of(taken, names, labels) + code
        case [str(op), *taken] if op in PLAIN:
            return body_of(taken, names, labels) + bytes([PLAIN[op]])
        case [str(op), *taken] if op in LANES:
            code = bytes([VECTOR]) + unsigned(LANES[op])
            return body_of(taken, names, labels) + code
    raise KernelError(f"this assembler does not know ({form[0]} …) in this form")


def body_of(
    forms: Iterable[Form], names: dict[str, int], labels: tuple[str, ...] = ()
) -> bytes:
    """Assemble instructions one after the other."""
    return b"".join(instruction(form, names, labels) for form in forms)


def assemble(text: str) -> bytes:
    """Make the module that a text describes.

    Raises:
        KernelError: if the text is not of the kind that this assembler knows.
    """
    match parse(text):
        case [
            "module",
            ["import", outer, inner, ["memory", str(pages)]],
            ["func", ["export", export], *rest],
        ]:
            pass
        case _:
            raise KernelError(
                "expected (module (import … (memory …)) (func (export …) …))"
            )
    parameters: list[bytes] = []
    local_types: list[bytes] = []
    names: dict[str, int] = {}
    body: list[Form] = []
    for form in rest:
        match form:
            case ["param" | "local" as kind, str(local), str(type_)] if type_ in TYPES:
                names[local] = len(names)
                types = parameters if kind == "param" else local_types
                types.append(bytes([TYPES[type_]]))
            case _:
                body.append(form)
    signature = b"\x60" + vector(parameters) + vector([])
    memory = name(outer) + name(inner) + bytes([2, 0]) + unsigned(int(pages))
    runs = [(type_, list(run)) for type_, run in groupby(local_types)]
    code = vector([unsigned(len(run)) + type_ for type_, run in runs])
    code += body_of(body, names) + bytes([END])
    return (
        b"\0asm\1\0\0\0"
        + section(1, [signature])
        + section(2, [memory])
        + section(3, [unsigned(0)])  # the one function has the one signature
        + section(7, [name(export) + bytes([0, 0])])
        + section(10, [unsigned(len(code)) + code])
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the kernel, or compare it; 1 if it is not what the source makes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true")
    built = assemble(SOURCE.read_text(encoding="utf-8"))
    if not parser.parse_args(arguments).check:
        KERNEL.write_bytes(built)
        print(f"{KERNEL.relative_to(ROOT)}: {len(built)} bytes")
    elif not KERNEL.is_file() or KERNEL.read_bytes() != built:
        print(
            f"{KERNEL.relative_to(ROOT)} is not what {SOURCE.relative_to(ROOT)} makes: "
            "run python tools/build_kernel.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
