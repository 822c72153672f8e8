/* names.c: writes row headers in the styles of UniRef90, BFD/Uniclust, MGnify and UniProt.
 * Accessions are invented but well formed; species and their numbers are those of the NCBI
 * taxonomy. */
#include "featurizer/synth/alignments.h"

#include <stdio.h>
#include <string.h>

typedef struct species_entry {
    const char *code, *name;
    unsigned taxon;
} species_entry;

static const species_entry all_species[] = {
    {"HUMAN", "Homo sapiens", 9606},
    {"MOUSE", "Mus musculus", 10090},
    {"BOVIN", "Bos taurus", 9913},
    {"CHICK", "Gallus gallus", 9031},
    {"XENLA", "Xenopus laevis", 8355},
    {"DANRE", "Danio rerio", 7955},
    {"DROME", "Drosophila melanogaster", 7227},
    {"CAEEL", "Caenorhabditis elegans", 6239},
    {"ARATH", "Arabidopsis thaliana", 3702},
    {"MAIZE", "Zea mays", 4577},
    {"YEAST", "Saccharomyces cerevisiae", 4932},
    {"NEUCR", "Neurospora crassa", 5141},
    {"DICDI", "Dictyostelium discoideum", 44689},
    {"PLAFA", "Plasmodium falciparum", 5833},
    {"ECOLX", "Escherichia coli", 562},
    {"BACSU", "Bacillus subtilis", 1423},
    {"PSEAI", "Pseudomonas aeruginosa", 287},
    {"MYCTX", "Mycobacterium tuberculosis", 1773},
    {"THEMA", "Thermotoga maritima", 2336},
    {"STRCO", "Streptomyces coelicolor", 1902},
    {"METJA", "Methanocaldococcus jannaschii", 2190},
    {"SULSO", "Saccharolobus solfataricus", 2287},
    {"9BACT", "uncultured bacterium", 77133},
    {"9ARCH", "uncultured archaeon", 115547},
};

static const char *const functions[] = {
    "Uncharacterized protein",
    "Putative hydrolase",
    "Transcriptional regulator",
    "Kinase domain protein",
    "Ribosome-associated protein",
    "Short-chain dehydrogenase",
    "Putative transporter",
    "DNA-binding protein",
    "Oxidoreductase",
    "Peptidase family member",
    "Conserved hypothetical protein",
    "Thioredoxin-like protein",
};

enum {
    N_SPECIES = sizeof all_species / sizeof all_species[0],
    N_FUNCTION = sizeof functions / sizeof functions[0],
};

/* Formats ten characters in UniProt's pattern. The first half encodes the family, the second half
 * counts rows. */
static void format_accession(uint32_t family, uint32_t row, char out[11]) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint32_t first = family % 12960, second = (row + family * 7919u % 336960u) % 336960u;
    snprintf(out, 11, "A0A%c%c%c%c%c%c%c", digits[first / 360], digits[first / 10 % 36],
             digits[first % 10], digits[10 + second / 12960], digits[second / 360 % 36],
             digits[second / 10 % 36], digits[second % 10]);
}

void fm_synth_name_row(uint64_t seed, uint32_t family, uint32_t row, unsigned database,
                       uint32_t n_letter, fm_synth_row_name *ret_name) {
    fm_synth_draws draws = fm_synth_draws_of(seed, FM_SYNTH_DRAW_NAME, family, row);
    const species_entry *from = &all_species[fm_synth_draw_below(&draws, N_SPECIES)];
    const char *function = functions[fm_synth_draw_below(&draws, N_FUNCTION)];
    uint32_t start = fm_synth_draw_chance(&draws, 1, 2) ? fm_synth_draw_between(&draws, 1, 9)
                                                        : fm_synth_draw_between(&draws, 1, 600);
    uint32_t end = start + n_letter - 1, style = fm_synth_draw_below(&draws, 10);
    uint32_t members = fm_synth_draw_between(&draws, 1, 9);
    char accession[11];
    format_accession(family, row, accession);
    char *name = ret_name->name, *description = ret_name->description;
    if (database == FM_SYNTH_UNIREF) {
        snprintf(name, FM_SYNTH_NAME_BYTES, "UniRef90_%s/%u-%u", accession, start, end);
        snprintf(description, FM_SYNTH_DESCRIPTION_BYTES,
                 "[subseq from] %s n=%u Tax=%s TaxID=%u RepID=%s_%s", function, members, from->name,
                 from->taxon, accession, from->code);
    } else if (database == FM_SYNTH_MGNIFY) {
        snprintf(name, FM_SYNTH_NAME_BYTES, "MGYP%012llu/%u-%u",
                 (unsigned long long)family * 131072u + row, start, end);
        snprintf(description, FM_SYNTH_DESCRIPTION_BYTES, "[subseq from] PL=%u%u UP=%u BIOMES=%07u",
                 style & 1, style >> 1 & 1, style == 9, 1000000u + (members & 3) * 100u);
    } else if (database == FM_SYNTH_UNIPROT) {
        snprintf(name, FM_SYNTH_NAME_BYTES, "%s|%s|%s_%s/%u-%u", style == 0 ? "sp" : "tr",
                 accession, accession, from->code, start, end);
        snprintf(description, FM_SYNTH_DESCRIPTION_BYTES, "[subseq from] %s OS=%s OX=%u", function,
                 from->name, from->taxon);
    } else if (style < 7) {
        snprintf(name, FM_SYNTH_NAME_BYTES, "%s|%s|%s_%s", style == 0 ? "sp" : "tr", accession,
                 accession, from->code);
        snprintf(description, FM_SYNTH_DESCRIPTION_BYTES, "%s OS=%s OX=%u PE=%u SV=1", function,
                 from->name, from->taxon, style == 0 ? 1u : 4u);
    } else { /* metagenomic reads of BFD: a bare name */
        snprintf(name, FM_SYNTH_NAME_BYTES, "SRR%07u_%u", 5000000u + family % 1000000u, 1000 + row);
        description[0] = '\0';
    }
}
