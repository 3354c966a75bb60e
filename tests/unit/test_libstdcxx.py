"""Link stubs: which symbols and versions an old libstdc++ is made to have."""

from __future__ import annotations

from toolchains.compilers.libstdcxx import Symbol, stub_sources

NEWEST = {"GLIBCXX": "3.4.25", "CXXABI": "1.3.11"}


def test_the_newest_version_within_the_bound_is_taken_and_data_keeps_its_kind() -> None:
    found = [
        Symbol("wait", "GLIBCXX_3.4.11", "function", 9),
        Symbol("wait", "GLIBCXX_3.4.30", "function", 9),
        Symbol("grow", "GLIBCXX_3.4", "function", 9),
        Symbol("grow", "GLIBCXX_3.4.21", "function", 9),
        Symbol("to_chars", "GLIBCXX_3.4.29", "function", 9),
    ]
    assembly, script = stub_sources(iter(found), NEWEST)
    assert "GLIBCXX_3.4.11 { global: wait; };" in script
    assert "GLIBCXX_3.4.21 { global: grow; };" in script
    assert "3.4.30" not in script
    assert "to_chars" not in script + assembly
    found = [Symbol("cout", "GLIBCXX_3.4", "object", 272), Symbol("call", "GLIBCXX_3.4.11", "tls_object", 8)]
    assembly, _ = stub_sources(iter(found), NEWEST)
    assert ".type cout, %object\n.size cout, 272\ncout: .zero 272" in assembly
    assert '.section .tbss,"awT",%nobits\n.globl call' in assembly
