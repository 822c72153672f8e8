#!/usr/bin/python3
"""read_events.py FILE: a file of TensorBoard events as JSON lines {"step": .., "wall_time": .., tag: value, ..}.

An independent reader of docs/reference/events.md: records with their CRCs, protocol buffers field by field, whatever
their order. Exit status 1 with a sentence when a record or a CRC is wrong.
"""
import json
import struct
import sys

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ 0x82F63B78 if n & 1 else n >> 1
    TABLE.append(n)


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of each field of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            sys.exit(f"field of kind {kind}")
        yield key >> 3, value


def records(data):
    at = 0
    while at < len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        if crc != masked_crc(data[at:at + 8]):
            sys.exit(f"byte {at}: wrong CRC of a length")
        body = data[at + 12:at + 12 + size]
        if struct.unpack_from("<I", data, at + 12 + size)[0] != masked_crc(body):
            sys.exit(f"byte {at + 12}: wrong CRC of the data")
        yield body
        at += 16 + size


for number, record in enumerate(records(open(sys.argv[1], "rb").read())):
    event = {"step": 0}
    for field, value in fields(record):
        if field == 1:
            event["wall_time"] = value
        elif field == 2:
            event["step"] = value
        elif field == 3:
            event["file_version"] = value.decode()
        elif field == 5:
            for _, one in fields(value):
                pair = dict(fields(one))
                event[pair[1].decode()] = pair[2]
    if (number == 0) != ("file_version" in event):
        sys.exit("the version is the first event, and no other")
    print(json.dumps(event))
