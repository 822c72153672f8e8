#!/usr/bin/env python3
"""Makes rows of Markdown tables from results of this folder (result.py says what is in them).

    rows.py FILE...            one table: a row for each row of each file
    rows.py --beside OURS FILE rows that both files have, side by side; "times" is FILE by OURS

Below a table, a line for each file says who was measured, how, when and where.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from result import Result


def number(value: float) -> str:
    """Prints a figure with three digits, or all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if "e" in digits else digits


def line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [line(*head), "|" + "---|" * len(head), *(line(*row) for row in rows)]


def columns_of(content: Result) -> list[str]:
    return list(dict.fromkeys(name for row in content["figures"].values() for name in row))


def stacked(results: list[Result]) -> list[str]:
    """One table with a row for each row of each result."""
    columns = list(dict.fromkeys(name for content in results for name in columns_of(content)))
    rows = [[f"{content['peer']}, {name}",
             *(number(row[column]) if column in row else "" for column in columns)]
            for content in results for name, row in content["figures"].items()]
    return table(["", *columns], rows)


def beside(ours: Result, theirs: Result) -> list[str]:
    """The rows that both have, side by side, and how many times larger theirs are."""
    common = [name for name in columns_of(ours) if name in columns_of(theirs)]
    only = [name for name in columns_of(ours) if name not in common]
    head = ["", *only]
    for column in common:
        head += [f"{ours['peer']}, {column}", f"{theirs['peer']}, {column}", "times"]
    rows = []
    for name, row in ours["figures"].items():
        other = theirs["figures"].get(name)
        if other is None:
            continue
        cells = [name, *(number(row[column]) if column in row else "" for column in only)]
        for column in common:
            value, their = row.get(column, 0.0), other.get(column, 0.0)
            cells += [number(value), number(their), number(their / value) if value else "-"]
        rows.append(cells)
    return table(head, rows)


def source(content: Result) -> str:
    """Says where the figures of a result come from."""
    who = " ".join(part for part in (content["peer"], content["version"], content["commit"][:12])
                   if part)
    settings = "; ".join(f"{name}: {value}" for name, value in content["settings"].items())
    return (f"- {who}: {content['what']}, {content['clock']} time; `{content['command']}`; "
            f"{content['machine']}, load {content['load']}; {content['date']}. {settings}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", action="store_true", help="two results with the same rows")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    results = [json.loads(Path(file).read_text(encoding="utf-8")) for file in options.files]
    if options.beside and len(results) != 2:
        parser.error(f"--beside takes two results, found {len(results)}")
    print("\n".join(beside(*results) if options.beside else stacked(results)), end="\n\n")
    print("\n".join(map(source, results)))


if __name__ == "__main__":
    main()
