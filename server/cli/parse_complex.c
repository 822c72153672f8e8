/* parse_complex.c: the kind complex of foldmill parse. */
#include "featurizer/complex/assembly_arrays.h"
#include "featurizer/complex/read.h"
#include "featurizer/complex/record_rows.h"
#include "server/cli/parse.h"
#include "server/cli/read_input.h"

#include <stdio.h>
#include <string.h>

/* The chains and interfaces that training draws. */
static fm_status append_records(fm_array_writer *writer, const fm_parse_request *request,
                                const fm_assembly *assembly, fm_error *reterr) {
    const fm_record_options options = {.compat_protenix = request->compat_protenix};
    fm_array arrays[FM_RECORD_ARRAYS];
    size_t n;
    fm_status status = fm_record_rows_list(assembly, &options, request->arena, arrays, &n, reterr);
    return status ? status : fm_array_writer_append_all(writer, arrays, n, reterr);
}

fm_status fm_parse_write_complex(const fm_parse_request *request, const fm_assembly *assembly,
                                 const fm_complex_entity_inputs *inputs, fm_array_format format,
                                 fm_error *reterr) {
    fm_array arrays[FM_ASSEMBLY_ARRAYS];
    fm_array_writer *writer;
    size_t n;
    fm_status status = fm_assembly_list_arrays(assembly, request->arena, arrays, &n, reterr);
    if (!status) status = fm_array_writer_create(request->out, format, &writer, reterr);
    if (status) return status;
    status = fm_array_writer_append_all(writer, arrays, n, reterr);
    if (!status) status = append_records(writer, request, assembly, reterr);
    if (!status) {
        status = fm_parse_append_complex_features(writer, request, assembly, inputs, reterr);
    }
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

static const char *molecule_name(uint8_t molecule) {
    static const char *const names[FM_N_MOLECULE] = {"protein", "RNA", "DNA", "ligand"};
    return names[molecule];
}

typedef struct chain_counts {
    uint32_t n_residue, n_token, n_atom, n_resolved;
} chain_counts;

static chain_counts count_chain(const fm_assembly *assembly, uint32_t c) {
    const fm_assembly_chain *chain = &assembly->chains[c];
    bool is_last = c + 1 == assembly->n_chain;
    uint32_t end = fm_assembly_chain_end_atom(assembly, c);
    chain_counts counts = {
        .n_residue =
            (is_last ? assembly->n_residue : chain[1].first_residue) - chain->first_residue,
        .n_token = (is_last ? assembly->n_token : chain[1].first_token) - chain->first_token,
        .n_atom = end - chain->first_atom,
    };
    for (uint32_t atom = chain->first_atom; atom < end; atom++)
        counts.n_resolved += assembly->atoms[atom].is_resolved;
    return counts;
}

static void print_assembly(const fm_parse_request *request, const fm_assembly *assembly) {
    printf("%s: mmCIF, %u chains, %u residues, %u tokens, %u atoms, %u bonds, %u interfaces\n",
           request->path, assembly->n_chain, assembly->n_residue, assembly->n_token,
           assembly->n_atom, assembly->n_bond, assembly->n_pair);
    printf("  method      %s\n", assembly->method[0] ? assembly->method : "not given");
    bool has_date = strcmp(assembly->release_date, "9999-12-31") != 0;
    printf("  released    %s\n", has_date ? assembly->release_date : "not given");
    if (assembly->resolution > 0) {
        printf("  resolution  %g Å\n", (double)assembly->resolution);
    } else {
        printf("  resolution  not given\n");
    }
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const fm_assembly_chain *chain = &assembly->chains[c];
        chain_counts counts = count_chain(assembly, c);
        printf("  chain %-6s author %-5s entity %-4s %-8s %5u residues, %5u tokens, %6u atoms, "
               "%6u without coordinates\n",
               chain->id, chain->auth_asym_id, assembly->entities[chain->entity].id,
               molecule_name(chain->molecule), counts.n_residue, counts.n_token, counts.n_atom,
               counts.n_atom - counts.n_resolved);
    }
}

static void write_json(const fm_parse_request *request, const fm_assembly *assembly) {
    fm_json_writer json;
    fm_parse_begin_json(request, "mmCIF", &json);
    fm_json_put_u64(&json, "residues", assembly->n_residue);
    fm_json_put_u64(&json, "tokens", assembly->n_token);
    fm_json_put_u64(&json, "atoms", assembly->n_atom);
    fm_json_put_u64(&json, "bonds", assembly->n_bond);
    fm_json_put_u64(&json, "interfaces", assembly->n_pair);
    fm_json_put_string(&json, "method", assembly->method[0] ? assembly->method : NULL);
    fm_json_put_string(&json, "release_date", assembly->release_date);
    fm_json_put_f64(&json, "resolution", (double)assembly->resolution, 3);
    fm_json_open_array(&json, "chains");
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const fm_assembly_chain *chain = &assembly->chains[c];
        chain_counts counts = count_chain(assembly, c);
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "chain", chain->id);
        fm_json_put_string(&json, "author", chain->auth_asym_id);
        fm_json_put_string(&json, "entity", assembly->entities[chain->entity].id);
        fm_json_put_string(&json, "molecule", molecule_name(chain->molecule));
        fm_json_put_u64(&json, "residues", counts.n_residue);
        fm_json_put_u64(&json, "tokens", counts.n_token);
        fm_json_put_u64(&json, "atoms", counts.n_atom);
        fm_json_put_u64(&json, "resolved", counts.n_resolved);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

fm_status fm_parse_kind_complex(const fm_parse_request *request, fm_error *reterr) {
    const fm_assembly_options options = {.compat_protenix = request->compat_protenix};
    fm_components components;
    fm_assembly assembly;
    fm_status status =
        fm_cli_read_components(request->components, request->arena, &components, reterr);
    if (!status) {
        status = fm_assembly_read(request->text, &components, &options, request->arena, &assembly,
                                  reterr);
    }
    if (status) return status;
    if (request->out) return fm_parse_write_complex(request, &assembly, NULL, FM_ARRAY_NPZ, reterr);
    if (request->json) {
        write_json(request, &assembly);
    } else {
        print_assembly(request, &assembly);
    }
    return FM_OK;
}
