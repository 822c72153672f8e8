#!/usr/bin/python3
"""check_formats.py FOLDER...: the files of predicted chains against the definitions of their formats.

JSON files are compared with the schemas beside this script, which describe the files of ColabFold and AlphaFold.
mmCIF files, which gemmi reads, are compared with the rules of the ModelCIF dictionary (mmcif_ma.dic 1.4) for the
categories that they have: mandatory items, values of closed lists, and keys that refer to other categories.
"""
import glob
import json
import os
import subprocess
import sys

import jsonschema

SCHEMAS = {"_scores.json": "colabfold_scores", "_pae.json": "alphafold_pae", "ranking.json": "alphafold_ranking"}

MANDATORY = {
    "ma_data": "id name content_type",
    "ma_data_group": "ordinal_id group_id data_id",
    "ma_model_list": "ordinal_id model_type data_id",
    "ma_protocol_step": "ordinal_id protocol_id step_id method_type",
    "ma_qa_metric": "id name type mode",
    "ma_qa_metric_global": "ordinal_id model_id metric_id metric_value",
    "ma_qa_metric_local": "ordinal_id model_id label_asym_id label_seq_id label_comp_id metric_id metric_value",
    "ma_software_group": "ordinal_id group_id software_id",
    "ma_target_entity": "entity_id data_id origin",
    "ma_target_entity_instance": "asym_id entity_id",
    "ma_template_details": "ordinal_id template_id template_origin template_entity_type template_trans_matrix_id "
                           "template_data_id target_asym_id template_auth_asym_id template_model_num",
    "ma_template_ref_db_details": "template_id db_name db_accession_code",
    "ma_template_trans_matrix": "id",
}
PARENT = {
    "ma_data_group.data_id": "ma_data.id",
    "ma_model_list.data_id": "ma_data.id",
    "ma_protocol_step.input_data_group_id": "ma_data_group.group_id",
    "ma_protocol_step.output_data_group_id": "ma_data_group.group_id",
    "ma_protocol_step.software_group_id": "ma_software_group.group_id",
    "ma_qa_metric.software_group_id": "ma_software_group.group_id",
    "ma_qa_metric_global.metric_id": "ma_qa_metric.id",
    "ma_qa_metric_global.model_id": "ma_model_list.model_id",
    "ma_qa_metric_local.label_asym_id": "struct_asym.id",
    "ma_qa_metric_local.label_comp_id": "chem_comp.id",
    "ma_qa_metric_local.metric_id": "ma_qa_metric.id",
    "ma_qa_metric_local.model_id": "ma_model_list.model_id",
    "ma_software_group.software_id": "software.pdbx_ordinal",
    "ma_target_entity.data_id": "ma_data.id",
    "ma_target_entity.entity_id": "entity.id",
    "ma_target_entity_instance.asym_id": "struct_asym.id",
    "ma_target_entity_instance.entity_id": "entity.id",
    "ma_template_details.target_asym_id": "ma_target_entity_instance.asym_id",
    "ma_template_details.template_data_id": "ma_data.id",
    "ma_template_details.template_trans_matrix_id": "ma_template_trans_matrix.id",
    "ma_template_ref_db_details.template_id": "ma_template_details.template_id",
    "entity_poly.entity_id": "entity.id",
    "entity_poly_seq.entity_id": "entity.id",
    "entity_poly_seq.mon_id": "chem_comp.id",
    "struct_asym.entity_id": "entity.id",
    "atom_site.label_asym_id": "struct_asym.id",
    "atom_site.label_comp_id": "chem_comp.id",
    "atom_site.label_entity_id": "entity.id",
    "atom_site.type_symbol": "atom_type.symbol",
    "atom_site.pdbx_PDB_model_num": "ma_model_list.model_id",
}
VALUES = {
    "entity.type": {"polymer"},
    "entity_poly.type": {"polypeptide(L)"},
    "ma_data.content_type": {"target", "template structure", "model coordinates"},
    "ma_model_list.model_type": {"Homology model", "Ab initio model", "Other"},
    "ma_protocol_step.method_type": {"modeling"},
    "ma_qa_metric.mode": {"local", "global", "local-pairwise"},
    "ma_qa_metric.type": {"pLDDT", "pTM", "PAE"},
    "ma_target_entity.origin": {"designed", "reference database"},
    "ma_template_details.template_entity_type": {"polymer"},
    "ma_template_details.template_origin": {"reference database", "customized"},
    "ma_template_ref_db_details.db_name": {"PDB"},
    "struct.pdbx_structure_determination_methodology": {"computational"},
}


def as_list(value):
    return value if isinstance(value, list) else [value]


def read_cif(path):
    """{category: {item: [value of each row]}}"""
    text = subprocess.run(["gemmi", "cif2json", path, "-"], check=True, capture_output=True, text=True).stdout
    (block,) = json.loads(text).values()
    categories = {}
    for tag, value in block.items():
        category, item = tag[1:].split(".")
        categories.setdefault(category, {})[item] = as_list(value)
    return categories


def check_cif(path):
    categories = read_cif(path)
    for category, items in categories.items():
        assert not category.startswith("ma_") or category in MANDATORY, f"{path}: unknown category {category}"
        for item in MANDATORY.get(category, "").split():
            assert None not in items.get(item, [None]), f"{path}: {category}.{item} is missing"
        for item, values in items.items():
            name = f"{category}.{item}"
            wrong = set(values) - VALUES.get(name, set(values))
            assert not wrong, f"{path}: {name} is {wrong}"
            if name in PARENT:
                parent, key = PARENT[name].split(".")
                lost = set(values) - {None} - set(categories.get(parent, {}).get(key, []))
                assert not lost, f"{path}: {name} {lost} is not in {PARENT[name]}"
    length = len(categories["entity_poly_seq"]["num"])
    assert categories["ma_qa_metric_local"]["label_seq_id"] == list(range(1, length + 1)), path
    assert categories["ma_qa_metric_local"]["label_comp_id"] == categories["entity_poly_seq"]["mon_id"], path
    return length


def check_json(path, length):
    ending = next(e for e in SCHEMAS if path.endswith(e))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas", SCHEMAS[ending] + ".json")) as file:
        schema = json.load(file)
    with open(path) as file:
        content = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(content, schema)
    matrix = content[0]["predicted_aligned_error"] if ending == "_pae.json" else content.get("pae", []) \
        if ending == "_scores.json" else []
    assert not matrix or [len(row) for row in matrix] == [length] * length, f"{path}: the matrix is not square"
    if ending == "_scores.json":
        assert len(content["plddt"]) == length, path
    if ending == "ranking.json":
        assert sorted(content["order"]) == sorted(content["plddts"]) and content["residues"] == length, path


for folder in sys.argv[1:]:
    structures = glob.glob(os.path.join(glob.escape(folder), "*.cif"))
    assert structures, f"{folder}: no structure"
    for structure in structures:
        n_res = check_cif(structure)
    found = [f for f in glob.glob(os.path.join(glob.escape(folder), "*.json")) if f.endswith(tuple(SCHEMAS))]
    assert len(found) == 2 * len(structures) + 1, f"{folder}: {found}"
    for name in found:
        check_json(name, n_res)
    print(folder, len(structures), "structures,", len(found), "JSON files")
