/* nucleic.c: see nucleic.h.
 *
 * An atom has one place in the frame of its base pair: bases are those of Olson et al. 2001 (J.
 * Mol. Biol. 313, 229-237). Backbones were fitted to ideal bond lengths and angles between
 * neighbours of the helix, which they keep within 0.01 Å. A second strand is the first, turned
 * about the frame's x axis. */
#include "featurizer/synth/nucleic.h"

#include "featurizer/synth/draw.h"
#include "featurizer/synth/motion.h"

#include <assert.h>
#include <string.h>

/* A place in the frame of the base pair. of: a base's letter, or 'r' and 'd' for the backbones of
 * RNA and DNA. */
typedef struct frame_atom {
    char of;
    char name[5];
    fm_vec3 at; /* Å */
} frame_atom;

/* clang-format off */
static const frame_atom frame_atoms[] = {
    {'r', "P", {0.951, 9.481, 0.586}}, {'r', "OP1", {0.487, 10.792, 1.106}},
    {'r', "OP2", {2.150, 8.836, 1.177}}, {'r', "O5'", {-0.262, 8.451, 0.658}},
    {'r', "C5'", {-1.587, 8.846, 0.254}}, {'r', "C4'", {-2.544, 7.685, 0.377}},
    {'r', "O4'", {-2.150, 6.636, -0.544}}, {'r', "C3'", {-2.561, 6.994, 1.738}},
    {'r', "O3'", {-3.464, 7.665, 2.613}}, {'r', "C2'", {-3.079, 5.605, 1.381}},
    {'r', "O2'", {-4.488, 5.575, 1.285}}, {'r', "C1'", {-2.479, 5.375, 0.000}},
    {'d', "P", {0.088, 9.516, -1.537}}, {'d', "OP1", {-0.485, 10.861, -1.799}},
    {'d', "OP2", {1.252, 9.377, -0.627}}, {'d', "O5'", {-1.081, 8.564, -1.018}},
    {'d', "C5'", {-2.195, 8.244, -1.872}}, {'d', "C4'", {-3.139, 7.281, -1.200}},
    {'d', "O4'", {-2.626, 5.930, -1.295}}, {'d', "C3'", {-3.411, 7.519, 0.281}},
    {'d', "O3'", {-4.758, 7.151, 0.571}}, {'d', "C2'", {-2.429, 6.562, 0.955}},
    {'d', "C1'", {-2.479, 5.375, 0.000}},
    {'A', "N9", {-1.291, 4.498, 0}}, {'A', "C8", {0.024, 4.897, 0}},
    {'A', "N7", {0.877, 3.902, 0}}, {'A', "C5", {0.071, 2.771, 0}},
    {'A', "C6", {0.369, 1.398, 0}}, {'A', "N6", {1.611, 0.909, 0}},
    {'A', "N1", {-0.668, 0.532, 0}}, {'A', "C2", {-1.912, 1.023, 0}},
    {'A', "N3", {-2.320, 2.290, 0}}, {'A', "C4", {-1.267, 3.124, 0}},
    {'C', "N1", {-1.285, 4.542, 0}}, {'C', "C2", {-1.472, 3.158, 0}},
    {'C', "O2", {-2.628, 2.709, 0}}, {'C', "N3", {-0.391, 2.344, 0}},
    {'C', "C4", {0.837, 2.868, 0}}, {'C', "N4", {1.875, 2.027, 0}},
    {'C', "C5", {1.056, 4.275, 0}}, {'C', "C6", {-0.023, 5.068, 0}},
    {'G', "N9", {-1.289, 4.551, 0}}, {'G', "C8", {0.023, 4.962, 0}},
    {'G', "N7", {0.870, 3.969, 0}}, {'G', "C5", {0.071, 2.833, 0}},
    {'G', "C6", {0.424, 1.460, 0}}, {'G', "O6", {1.554, 0.955, 0}},
    {'G', "N1", {-0.700, 0.641, 0}}, {'G', "C2", {-1.999, 1.087, 0}},
    {'G', "N2", {-2.949, 0.139, 0}}, {'G', "N3", {-2.342, 2.364, 0}},
    {'G', "C4", {-1.265, 3.177, 0}},
    {'T', "N1", {-1.284, 4.500, 0}}, {'T', "C2", {-1.462, 3.135, 0}},
    {'T', "O2", {-2.562, 2.608, 0}}, {'T', "N3", {-0.298, 2.407, 0}},
    {'T', "C4", {0.994, 2.897, 0}}, {'T', "O4", {1.944, 2.119, 0}},
    {'T', "C5", {1.106, 4.338, 0}}, {'T', "C7", {2.466, 4.961, 0}},
    {'T', "C6", {-0.024, 5.057, 0}},
    {'U', "N1", {-1.284, 4.500, 0}}, {'U', "C2", {-1.462, 3.131, 0}},
    {'U', "O2", {-2.563, 2.608, 0}}, {'U', "N3", {-0.302, 2.397, 0}},
    {'U', "C4", {0.989, 2.884, 0}}, {'U', "O4", {1.935, 2.094, 0}},
    {'U', "C5", {1.089, 4.311, 0}}, {'U', "C6", {-0.024, 5.053, 0}},
};
/* clang-format on */

/* From one frame to the next one. */
typedef struct helix_shape {
    double displacement; /* Å along x from the helix's axis */
    double inclination;  /* degrees about x */
    double twist, rise;  /* degrees and Å a step */
} helix_shape;

static const helix_shape a_rna = {-4, 18, 32.7, 2.81}, b_dna = {-1, 5, 36, 3.36};

static char complement_of(char letter, bool is_rna) {
    switch (letter) {
    case 'A': return is_rna ? 'U' : 'T';
    case 'C': return 'G';
    case 'G': return 'C';
    default: return 'A';
    }
}

void fm_synth_strand_draw(uint64_t seed, const fm_synth_entry *entry, uint32_t strand,
                          fm_synth_strand *ret_strand) {
    const fm_synth_recipe *recipe = entry->recipe;
    assert(recipe && strand < recipe->n_strand);
    const char *letters = recipe->is_rna ? "ACGU" : "ACGT";
    fm_synth_draws draws = fm_synth_draws_of(seed, FM_SYNTH_DRAW_STRAND, entry->index, 0);
    fm_synth_strand drawn = {.n = 2 * fm_synth_draw_between(&draws, 4, FM_SYNTH_MAX_STRAND / 2)};
    for (uint32_t i = 0; i < drawn.n; i++) {
        drawn.letters[i] = letters[fm_synth_draw_below(&draws, 4)];
        if (recipe->same_strand && i >= drawn.n / 2) {
            drawn.letters[i] = complement_of(drawn.letters[drawn.n - 1 - i], recipe->is_rna);
        }
    }
    *ret_strand = drawn;
    for (uint32_t i = 0; strand == 1 && i < drawn.n; i++)
        ret_strand->letters[i] = complement_of(drawn.letters[drawn.n - 1 - i], recipe->is_rna);
}

static const frame_atom *find_atom(char of, const char *name) {
    for (size_t i = 0; i < sizeof frame_atoms / sizeof frame_atoms[0]; i++) {
        if (frame_atoms[i].of == of && strcmp(frame_atoms[i].name, name) == 0) {
            return &frame_atoms[i];
        }
    }
    return NULL;
}

/* The motion from a frame to its place in the helix. */
static fm_synth_motion step_of(const helix_shape *helix, uint32_t step) {
    double sine, cosine, s, c;
    fm_geometry_sincos(helix->inclination, &sine, &cosine);
    fm_geometry_sincos(helix->twist * step, &s, &c);
    double x = helix->displacement;
    return (fm_synth_motion){
        {{c, -s * cosine, s * sine}, {s, c * cosine, -c * sine}, {0, sine, cosine}},
        {c * x, s * x, helix->rise * step}};
}

void fm_synth_nucleotide_place(const fm_component *component, char letter, bool is_rna,
                               uint32_t strand, uint32_t i, uint32_t n, fm_vec3 *ret_atoms,
                               bool *ret_has) {
    const fm_synth_motion motion = step_of(is_rna ? &a_rna : &b_dna, strand == 0 ? i : n - 1 - i);
    for (uint32_t k = 0; k < component->n_atom; k++) {
        const char *name = component->atoms[k].name;
        const frame_atom *atom = find_atom(letter, name);
        if (!atom) atom = find_atom(is_rna ? 'r' : 'd', name);
        bool is_phosphate = strcmp(name, "P") == 0 || strncmp(name, "OP", 2) == 0;
        ret_has[k] = atom && !(i == 0 && is_phosphate);
        if (!ret_has[k]) continue;
        fm_vec3 at = atom->at;
        if (strand == 1) at = (fm_vec3){at.x, -at.y, -at.z};
        ret_atoms[k] = fm_synth_move(&motion, at);
    }
}
