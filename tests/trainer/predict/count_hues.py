"""count_hues.py PNG LEFT-RIGHT:HUE:LEAST...: at least LEAST pixels of these columns have the hue, give or take 8 degrees.

Reads PNG files of 8 bits with three or four channels. Grey pixels have no hue.
"""
import colorsys
import struct
import sys
import zlib


def read(path):
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
            assert depth == 8 and colour in (2, 6), (depth, colour)
        if kind == b"IDAT":
            body += data[at + 8:at + 8 + size]
        at += 12 + size
    return width, height, 4 if colour == 6 else 3, zlib.decompress(body)


def predict(kind, left, above, corner):
    if kind == 4:
        base = left + above - corner
        return min((left, above, corner), key=lambda one: abs(base - one))
    return (0, left, above, (left + above) // 2)[kind]


def rows(width, height, channels, body):
    before, size = bytes(width * channels), width * channels
    for y in range(height):
        kind, line = body[y * (size + 1)], bytearray(body[y * (size + 1) + 1:(y + 1) * (size + 1)])
        for i in range(size if kind else 0):
            left, corner = (line[i - channels], before[i - channels]) if i >= channels else (0, 0)
            line[i] = (line[i] + predict(kind, left, before[i], corner)) & 255
        yield line
        before = line


width, height, channels, body = read(sys.argv[1])
wanted = []
for text in sys.argv[2:]:
    columns, hue, least = text.split(":")
    first, last = columns.split("-")
    wanted.append([int(first), int(last), int(hue), int(least), 0])
hues = {}
for line in rows(width, height, channels, body):
    for x in range(width):
        pixel = bytes(line[x * channels:x * channels + 3])
        if max(pixel) - min(pixel) < 40:
            continue
        if pixel not in hues:
            hues[pixel] = 360 * colorsys.rgb_to_hsv(*(value / 255 for value in pixel))[0]
        for one in wanted:
            if one[0] <= x < one[1] and abs((hues[pixel] - one[2] + 180) % 360 - 180) <= 8:
                one[4] += 1
for first, last, hue, least, found in wanted:
    print(f"columns {first} to {last}, hue {hue}: {found} pixels, expected at least {least}")
sys.exit(any(one[4] < one[3] for one in wanted))
