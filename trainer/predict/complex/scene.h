/* scene.h: what the page draws of a complex in three dimensions, as one object of JSON.
 *
 * Polymers are drawn as ribbons, so a residue has the place of one atom and a direction: of
 * proteins CA and from C to O, of nucleic acids C4' and from it to the base's N1 (purines) or N3.
 * Atoms and bonds are drawn of ligands, of residues that are not standard, and of residues with a
 * bond that is not a link of their polymer.
 *
 *     classes     [[least pLDDT, "name", "#colour"]] best first
 *     chains      ["id"]
 *     components  ["id"]
 *     residues    11 numbers each: chain, number, component, pLDDT, 1 for nucleic acids, place,
 *                 direction
 *     atoms       7 numbers each: chain, number, component, pLDDT, place
 *     names       ["name", "ELEMENT"] of the atoms, flat
 *     bonds       3 numbers each: two atoms, order 1 to 3
 *
 * Places and directions are three numbers each, in hundredths of an Å, and places are relative to
 * the mean of what is drawn. pLDDT is 0 to 100; that of a residue is its atoms' mean. */
#ifndef FM_COMPLEX_SCENE_H
#define FM_COMPLEX_SCENE_H

#include "trainer/predict/complex/files.h"

#include <stdio.h>

/* At most so many residues and so many atoms are drawn, so that a page stays small. */
enum { FM_SCENE_ROWS = 16384 };

/* Writes the object, escaped as text of HTML. *ret_left_out is the number of residues and atoms
 * that are not drawn because there are too many. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_scene_put(FILE *out, const fm_complex_prediction *p,
                                           uint32_t *ret_left_out, fm_error *reterr);

#endif
