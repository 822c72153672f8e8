/* npz_format.h: the constants of the zip and .npy formats for npz.c and npz_write.c (PKWARE APPNOTE
 * 6.3, sections 4.3.7 to 4.3.16; numpy.lib.format). */
#ifndef FM_PROTO_NPZ_FORMAT_H
#define FM_PROTO_NPZ_FORMAT_H

#define NPY_MAGIC "\x93NUMPY"

#define ZIP_LOCAL 0x04034b50u
#define ZIP_CENTRAL 0x02014b50u
#define ZIP_END 0x06054b50u
#define ZIP_END64 0x06064b50u
#define ZIP_END64_LOCATOR 0x07064b50u

/* A field with this value has its content in a zip64 structure. */
#define ZIP_IN_EXTRA16 0xffffu
#define ZIP_IN_EXTRA32 0xffffffffu

enum {
    ZIP_STORED = 0,
    ZIP_DEFLATED = 8,
    ZIP_EXTRA_ZIP64 = 1,      /* tag of the extra field */
    ZIP_ZIP64_EXTRA_MAX = 28, /* tag, length, two sizes, an offset */
    ZIP_CENTRAL_BYTES = 46,   /* fixed parts, without name and extra */
    ZIP_END_BYTES = 22,
    ZIP_END64_BYTES = 56,
    ZIP_END64_LOCATOR_BYTES = 20
};

#endif
