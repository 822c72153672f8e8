/* table.cu: the tables of the families' functions, and the device behind them. */
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

template <typename T>
static fm_kernels make_table(const char *name, fm_element act, const fm_kernels *wide) {
    fm_kernels k = {};
    k.name = name, k.act = act, k.acc = FM_ELEMENT_F32, k.wide = wide;
    k.device = device_table();
    k.alloc = alloc, k.release = release;
    k.upload = upload, k.download = download, k.synchronize = synchronize;
    k.fill = fill<T>, k.copy = copy<T>, k.cast = cast<T>, k.copy_strided = copy_strided<T>;
    k.widen = widen, k.unpack_bits = unpack_bits<T>;
    k.axpy = axpy<T>, k.axpy_device = axpy_device;
    k.sum_workspace = sum_workspace, k.sum = sum<T>;
    k.gemm_workspace = gemm_workspace, k.gemm = gemm<T>;
    k.layernorm = layernorm<T>;
    k.layernorm_grad_workspace = layernorm_grad_workspace, k.layernorm_grad = layernorm_grad<T>;
    k.bias_add = bias_add<T>, k.relu = relu<T>, k.relu_grad = relu_grad<T>;
    k.gate = gate<T>, k.gate_grad = gate_grad<T>, k.scale_rows = scale_rows<T>;
    k.swiglu = swiglu<T>, k.swiglu_grad = swiglu_grad<T>;
    k.masked_mean = masked_mean<T>, k.masked_mean_grad = masked_mean_grad<T>;
    k.attention_workspace = attention_workspace<T>, k.attention = attention<T>;
    k.attention_grad_workspace = attention_grad_workspace<T>;
    k.attention_grad = attention_grad<T>;
    k.outer_workspace = outer_workspace<T>, k.outer = outer<T>;
    k.outer_grad_workspace = outer_grad_workspace<T>, k.outer_grad = outer_grad<T>;
    k.triangle_workspace = triangle_workspace<T>, k.triangle = triangle<T>;
    k.triangle_grad_workspace = triangle_grad_workspace<T>, k.triangle_grad = triangle_grad<T>;
    k.dropout = dropout<T>, k.dropout_grad = dropout_grad<T>;
    k.triangle_block_kept = triangle_block_kept<T>;
    k.triangle_block_workspace = triangle_block_workspace<T>;
    k.triangle_block = triangle_block<T>;
    k.triangle_block_grad_workspace = triangle_block_grad_workspace<T>;
    k.triangle_block_grad = triangle_block_grad<T>;
    k.update_norm = update_norm<T>, k.update_norm_grad = update_norm_grad<T>;
    k.update_norm_grad_workspace = update_norm_grad_workspace;
    k.lookup = lookup<T>;
    k.lookup_grad_workspace = lookup_grad_workspace, k.lookup_grad = lookup_grad<T>;
    k.relpos = relpos<T>;
    k.relpos_grad_workspace = relpos_grad_workspace, k.relpos_grad = relpos_grad<T>;
    k.distance_ids = distance_ids;
    k.outer_sum = outer_sum<T>, k.outer_sum_grad = outer_sum_grad<T>;
    k.msa_features = msa_features<T>;
    k.ipa_workspace = ipa_workspace, k.ipa = ipa<T>;
    k.ipa_grad_workspace = ipa_grad_workspace, k.ipa_grad = ipa_grad<T>;
    k.frame_update = frame_update<T>, k.frame_update_grad = frame_update_grad<T>;
    k.matrix_frames = matrix_frames<T>, k.matrix_frames_grad = matrix_frames_grad<T>;
    k.unit_pairs = unit_pairs<T>, k.unit_pairs_grad = unit_pairs_grad<T>;
    k.residue_atoms = residue_atoms<T>, k.residue_atoms_grad = residue_atoms_grad<T>;
    k.pseudo_beta = pseudo_beta<T>;
    k.fape_workspace = fape_workspace, k.fape = fape<T>, k.fape_grad = fape_grad<T>;
    k.choose_naming = choose_naming<T>;
    k.torsion_loss = torsion_loss<T>, k.torsion_loss_grad = torsion_loss_grad<T>;
    k.lddt_bins = lddt_bins<T>, k.aligned_error_bins = aligned_error_bins<T>;
    k.binary_entropy = binary_entropy<T>, k.binary_entropy_grad = binary_entropy_grad<T>;
    k.violation_workspace = violation_workspace, k.violation = violation<T>;
    k.violation_grad = violation_grad<T>;
    k.distance_bins = distance_bins<T>;
    k.cross_entropy_workspace = cross_entropy_workspace, k.cross_entropy = cross_entropy<T>;
    k.cross_entropy_grad = cross_entropy_grad<T>;
    k.grad_norm_workspace = grad_norm_workspace, k.grad_norm = grad_norm;
    k.find_nonfinite = find_nonfinite<T>, k.accumulate = accumulate;
    k.adam = adam<T>, k.init = init;
    k.take_packet = take_packet, k.report = report;
    return k;
}

} // namespace fm_cuda

const fm_kernels *fm_kernels_cuda(fm_element act) {
    static const fm_kernels f32 = fm_cuda::make_table<float>("cuda-f32", FM_ELEMENT_F32, NULL);
    static const fm_kernels half =
        fm_cuda::make_table<fm_cuda::bf16>("cuda-bf16", FM_ELEMENT_BF16, &f32);
    int devices = 0;
    if (act != FM_ELEMENT_F32 && act != FM_ELEMENT_BF16) return NULL;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        (void)cudaGetLastError(); /* no driver, or no device: said by NULL */
        return NULL;
    }
    if (!fm_cuda::gemm_prepare()) return NULL;
    return act == FM_ELEMENT_F32 ? &f32 : &half;
}
