/* view.h: the script that draws a complex in three dimensions, which the build puts into the
 * program. complex/scene.h has the object that it draws. */
#ifndef FM_TRAINER_VIEW_H
#define FM_TRAINER_VIEW_H

typedef struct fm_view_script {
    const char *name, *text;
} fm_view_script;

/* The script, and a row of zeros. */
extern const fm_view_script fm_view_scripts[];

#endif
