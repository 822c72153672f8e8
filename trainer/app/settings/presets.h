/* presets.h: the files of trainer/presets/ as text inside the program. CMake generates
 * presets.c. */
#ifndef FM_TRAINER_PRESETS_H
#define FM_TRAINER_PRESETS_H

typedef struct fm_preset {
    const char *name; /* the file's name without .ini; NULL ends the list */
    const char *text; /* its first line is "; NAME: " and what the preset is for */
} fm_preset;

extern const fm_preset fm_presets[];

#endif
