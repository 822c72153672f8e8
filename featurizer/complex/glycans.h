/* glycans.h: which components are glycans. */
#ifndef FM_COMPLEX_GLYCANS_H
#define FM_COMPLEX_GLYCANS_H

#include <stdbool.h>

/* Returns whether the component of that id (terminated) is among the 992 that the reference lists
 * as glycans (Protenix 3248f8e). */
bool fm_component_is_glycan(const char *id);

#endif
