/* limits.h: every maximum of foldmill, with its unit and its reason. Input that exceeds one is
 * refused with FM_ERR_LIMIT, naming the limit, before memory is taken for it. */
#ifndef FM_LIMITS_H
#define FM_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* -- inputs */

/* Bytes of one input file, decompressed. The largest mmCIF file of the PDB is about 1 GB;
 * alignments stay below 200 MB. */
#define FM_LIMIT_INPUT_BYTES ((size_t)2 << 30)
/* Residues of a chain. The longest chain of the PDB has about 5,000; titin has 35,000. */
#define FM_LIMIT_N_RES 65535u
/* Rows of one alignment, and of all alignments of a chain together. */
#define FM_LIMIT_N_SEQ 4194304u
/* Deletions before one position: what the record's u16 holds. */
#define FM_LIMIT_DELETION 65535u
/* Template hits of one chain. hmmsearch finds tens of thousands for an antibody. */
#define FM_LIMIT_N_HIT 1048576u
/* Bytes of a chain id, "1abc_A", and of a dataset's other names. */
#define FM_LIMIT_NAME_BYTES 255u
/* Atoms of one mmCIF file (all models), enough for the largest capsids. */
#define FM_LIMIT_N_ATOM 50000000u
/* Residues of one _entity_poly_seq loop. */
#define FM_LIMIT_N_POLY_RES 4000000u
/* Columns of one loop of a CIF file. The widest loop of the PDB's dictionary has about 120. */
#define FM_LIMIT_CIF_COLUMN 512u
/* Monomers at one position of a chain (microheterogeneity). Real files have two or three. */
#define FM_LIMIT_ALTERNATIVE 64u
/* Chemical components of one dictionary. The PDB's has about 50,000. */
#define FM_LIMIT_N_COMPONENT 1048576u
/* Atoms of one component, hydrogens included, and its bonds. The largest have about 1,000 atoms;
 * the indices of a stored bond are u16. */
#define FM_LIMIT_COMPONENT_ATOM 8192u
#define FM_LIMIT_COMPONENT_BOND 16384u
/* Bytes of a component's type, name or formula. */
#define FM_LIMIT_COMPONENT_TEXT 4096u
/* Rows of a table of recorded crops, and their numbers. */
#define FM_LIMIT_N_CROP_ROW 65536u
/* Rows of _atom_site of a complex, all models. The reference (Protenix) reads no larger file. */
#define FM_LIMIT_N_COMPLEX_ROW 1000000u
/* Atoms of a complex: in its completed chains, and in all copies of its assembly. A capsid of 180
 * chains has about 500,000. */
#define FM_LIMIT_N_COMPLEX_ATOM 8388608u
/* Bonds of a complex, of all alternatives. */
#define FM_LIMIT_N_COMPLEX_BOND 33554432u
/* Copies of chains in an assembly. Capsids with sites of water and ions have some thousands. */
#define FM_LIMIT_N_COMPLEX_CHAIN 16384u

/* -- jobs of predictions */

/* Bytes of the description of jobs. Alignments may be inside. */
#define FM_LIMIT_JOB_BYTES ((size_t)64 << 20)
/* Bytes of a description in YAML, where nothing of that size is inside. */
#define FM_LIMIT_JOB_YAML_BYTES ((size_t)1 << 20)
/* Values of a description, how deep they lie, and the keys of one mapping. The formats nest 8 deep
 * and have at most 20 keys; index maps of templates have thousands of numbers. */
#define FM_LIMIT_JOB_VALUE 2097152u
#define FM_LIMIT_JOB_DEPTH 32u
#define FM_LIMIT_JOB_KEY 128u
/* Jobs of one description. */
#define FM_LIMIT_N_JOB 10000u
/* Chains, letters and components, bonds and seeds of a job. */
#define FM_LIMIT_N_JOB_CHAIN 10000u
#define FM_LIMIT_N_JOB_RESIDUE 1000000u
#define FM_LIMIT_N_JOB_BOND 1000u
#define FM_LIMIT_N_JOB_SEED 10000u
/* Tokens of a job. */
#define FM_LIMIT_N_JOB_TOKEN 16384u
/* Templates of an entity; AlphaFold 3 takes 20. */
#define FM_LIMIT_N_JOB_TEMPLATE 20u
/* A user's components, and the atoms of one. */
#define FM_LIMIT_N_USER_COMPONENT 1024u
#define FM_LIMIT_USER_COMPONENT_ATOM 1000u
/* Bytes of all files that a job names. */
#define FM_LIMIT_JOB_FILE_BYTES ((size_t)2 << 30)

/* -- record and store */

/* Bytes of one decoded part. An MSA of 60,000 x 5,000 with its deletions takes 0.9 GB. */
#define FM_LIMIT_PART_BYTES ((size_t)2 << 30)
/* Chains of one generation. OpenFold's PDB set has 634,434, its distillation set 270,000. */
#define FM_LIMIT_N_CHAIN 16777216u
/* Datasets with shares in one snapshot: as many as one build takes. AlphaFold2 mixed two. */
#define FM_LIMIT_N_SHARE 64u

/* -- sample and wire */

/* Tensors of one sample. Chains have at most 9 shared ones and 9 for each of 4 cycles, complexes 41
 * and 2. */
#define FM_LIMIT_N_SEGMENT 512u
/* Dimensions of a tensor on the wire. */
#define FM_LIMIT_RANK 6u
/* Rows of a cycle: clustered ones, and extra ones. AlphaFold2 uses at most 512 and 5,120. */
#define FM_LIMIT_N_CLUSTER 65536u
#define FM_LIMIT_N_EXTRA 1048576u
/* What a sample of a complex has at most: bonds for each token, of which one is between a polymer
 * and a ligand, and orders of equivalent atoms for each atom. Atoms of ligands have four bonds at
 * most with few exceptions, and components have at most 1,000 orders. */
#define FM_LIMIT_BONDS_PER_TOKEN 8u
#define FM_LIMIT_ORDERS_PER_ATOM 1000u
/* Draws of MSA rows: one for each recycling cycle, or several with ensembling. AlphaFold2 trains
 * with 4 cycles, and at CASP14 it predicted with 4 of 8 draws; multimer has 21. */
#define FM_LIMIT_N_CYCLE 48u
/* Bytes of one frame's body. A fine-tuning sample of 4 cycles takes 66 MB. One of 6,600 residues
 * with 508 + 5,120 rows takes up to 1.64 GiB. Must be less than 2^31. */
#define FM_LIMIT_FRAME_BYTES ((size_t)1792 << 20)
/* Streams per connection, and connections per server. A trainer rank needs one of each. */
#define FM_LIMIT_N_STREAM 16u
#define FM_LIMIT_N_CONNECTION 4096u
/* Groups that share a stream's steps, and samples per step. ScaleFold's largest batch is 256. */
#define FM_LIMIT_N_GROUP 65536u
#define FM_LIMIT_GLOBAL_BATCH 65536u
/* Steps of a run. With the largest batch every sample index stays below 2^56. */
#define FM_LIMIT_STEP ((uint64_t)1 << 40)
/* W of `bounded:W`. A window of tens recovers nearly all that strict order costs; more only holds
 * memory. */
#define FM_LIMIT_WINDOW 1024u
/* Order free: no sample is overtaken by more of its group. */
#define FM_LIMIT_FREE_WINDOW 8192u
/* Credits that a stream can hold, in samples and in bytes. */
#define FM_LIMIT_CREDIT_ITEMS 65536u
#define FM_LIMIT_CREDIT_BYTES ((uint64_t)1 << 40)
/* Bytes of a resume token's bitmap: 65,536 samples beyond the watermark. */
#define FM_LIMIT_TOKEN_BYTES 8192u

#endif
