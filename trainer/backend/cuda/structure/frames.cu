/* frames.cu: backbone frames, torsion angles to frames and atoms (A23-A25). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/structure/rigid.cuh"

namespace fm_cuda {

/* quaternion + quaternion (0, v); its direction is the new rotation (A23:2-3). */
__device__ inline void turn_quaternion(const float *q, const float *v, float *out) {
    out[0] = q[0] - q[1] * v[0] - q[2] * v[1] - q[3] * v[2];
    out[1] = q[1] + q[0] * v[0] + q[2] * v[2] - q[3] * v[1];
    out[2] = q[2] + q[0] * v[1] - q[1] * v[2] + q[3] * v[0];
    out[3] = q[3] + q[0] * v[2] + q[1] * v[1] - q[2] * v[0];
}

__device__ inline float quaternion_length(const float *q) {
    return sqrtf(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
}

template <typename T>
void frame_update(fm_stream *stream, int64_t n, const void *frames, const void *update, void *y) {
    const T *from = (const T *)frames, *by = (const T *)update;
    T *to_frames = (T *)y;
    each(stream, n, [=] __device__(int64_t i) {
        float frame[FRAME], u[6], rotation[9], shift[3], out[FRAME];
        read_row<FRAME>(from + FRAME * i, frame);
        read_row<6>(by + 6 * i, u);
        matrix_of_quaternion(frame, rotation);
        rotate(rotation, u + 3, shift);
        turn_quaternion(frame, u, out);
        float length = quaternion_length(out);
#pragma unroll
        for (int k = 0; k < 4; k++)
            out[k] /= length;
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            out[4 + axis] = frame[4 + axis] + shift[axis];
        put_row<FRAME>(to_frames + FRAME * i, FM_WRITE, out);
    });
}

/* The gradient of the sum before normalisation, from that of the new quaternion. */
__device__ inline void direction_grad(const float *turned, const float *dy, float *d) {
    float length = quaternion_length(turned), along = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
        along += dy[k] * turned[k] / length;
#pragma unroll
    for (int k = 0; k < 4; k++)
        d[k] = (dy[k] - along * turned[k] / length) / length;
}

template <typename T>
void frame_update_grad(fm_stream *stream, int64_t n, const void *frames, const void *update,
                       const void *dy, fm_out dframes, fm_out dupdate) {
    const T *from = (const T *)frames, *by = (const T *)update, *dto = (const T *)dy;
    each(stream, n, [=] __device__(int64_t i) {
        float q[4], v[6], dout[FRAME], rotation[9], turned[4], d[4], du[6];
        read_row<4>(from + FRAME * i, q);
        read_row<6>(by + 6 * i, v);
        read_row<FRAME>(dto + FRAME * i, dout);
        matrix_of_quaternion(q, rotation);
        turn_quaternion(q, v, turned);
        direction_grad(turned, dout, d);
        du[0] = -q[1] * d[0] + q[0] * d[1] + q[3] * d[2] - q[2] * d[3];
        du[1] = -q[2] * d[0] - q[3] * d[1] + q[0] * d[2] + q[1] * d[3];
        du[2] = -q[3] * d[0] + q[2] * d[1] - q[1] * d[2] + q[0] * d[3];
        rotate_back(rotation, dout + 4, du + 3);
        if (dupdate.data) put_row<6>((T *)dupdate.data + 6 * i, dupdate.beta, du);
        if (!dframes.data) return;
        float drotation[9] = {0}, dframe[FRAME];
        add_outer(drotation, dout + 4, v + 3);
        quaternion_grad(q, drotation, dframe);
        dframe[0] += d[0] + v[0] * d[1] + v[1] * d[2] + v[2] * d[3];
        dframe[1] += d[1] - v[0] * d[0] - v[2] * d[2] + v[1] * d[3];
        dframe[2] += d[2] - v[1] * d[0] + v[2] * d[1] - v[0] * d[3];
        dframe[3] += d[3] - v[2] * d[0] - v[1] * d[1] + v[0] * d[2];
#pragma unroll
        for (int axis = 0; axis < 3; axis++)
            dframe[4 + axis] = dout[4 + axis];
        put_row<FRAME>((T *)dframes.data + FRAME * i, dframes.beta, dframe);
    });
}

template <typename T> __device__ inline void matrix_frame(const T *frame, float scale, float *out) {
    float in[FRAME];
    read_row<FRAME>(frame, in);
    matrix_of_quaternion(in, out);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        out[9 + axis] = scale * in[4 + axis];
}

template <typename T>
__device__ inline void matrix_frame_grad(const T *frame, float scale, const float *d, T *dx,
                                         fm_beta beta) {
    float q[4], dframe[FRAME];
    read_row<4>(frame, q);
    quaternion_grad(q, d, dframe);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        dframe[4 + axis] = scale * d[9 + axis];
    put_row<FRAME>(dx, beta, dframe);
}

template <typename T>
void matrix_frames(fm_stream *stream, int64_t n, double scale, const void *frames, void *y) {
    const T *from = (const T *)frames;
    T *out = (T *)y;
    each(stream, n, [=] __device__(int64_t i) {
        float matrix[MATRIX];
        matrix_frame(from + FRAME * i, (float)scale, matrix);
        put_row<MATRIX>(out + MATRIX * i, FM_WRITE, matrix);
    });
}

template <typename T>
void matrix_frames_grad(fm_stream *stream, int64_t n, double scale, const void *frames,
                        const void *dy, fm_out dx) {
    const T *from = (const T *)frames, *din = (const T *)dy;
    each(stream, n, [=] __device__(int64_t i) {
        float d[MATRIX];
        read_row<MATRIX>(din + MATRIX * i, d);
        matrix_frame_grad(from + FRAME * i, (float)scale, d, (T *)dx.data + FRAME * i, dx.beta);
    });
}

template <typename T>
void unit_pairs(fm_stream *stream, int64_t n, double eps, const void *x, void *y) {
    const T *in = (const T *)x;
    T *out = (T *)y;
    each(stream, n, [=] __device__(int64_t i) {
        float a = get(in[2 * i]), b = get(in[2 * i + 1]), square = a * a + b * b;
        float length = sqrtf(square < (float)eps ? (float)eps : square);
        out[2 * i] = to<T>(a / length);
        out[2 * i + 1] = to<T>(b / length);
    });
}

template <typename T>
void unit_pairs_grad(fm_stream *stream, int64_t n, double eps, const void *x, const void *dy,
                     fm_out dx) {
    const T *in = (const T *)x, *din = (const T *)dy;
    each(stream, n, [=] __device__(int64_t i) {
        float a[2], d[2];
        read_row<2>(in + 2 * i, a);
        read_row<2>(din + 2 * i, d);
        float square = a[0] * a[0] + a[1] * a[1];
        bool bounded = square < (float)eps;
        float length = sqrtf(bounded ? (float)eps : square);
        float along = bounded ? 0 : (d[0] * a[0] + d[1] * a[1]) / (length * length);
#pragma unroll
        for (int k = 0; k < 2; k++)
            put((T *)dx.data + 2 * i + k, dx.beta, (d[k] - along * a[k]) / length);
    });
}

/* -- atoms */

/* 16 lanes work on a residue. A lane handles a rigid group first, then an atom. */

enum { FIRST_CHAINED = 5, SLOTS = 16, RESIDUES = 8 };

/* A24: the frame of a group in its parent's frame: the ideal frame, turned about x. */
template <typename T>
__device__ inline void local_frame(const fm_residue_atoms &a, int64_t i, int group, float *frame) {
    const float *ideal = a.group_frames + (a.aatype[i] * GROUPS + group) * MATRIX;
    float sine = 0, cosine = 1;
    if (a.angles) {
        const T *angle = (const T *)a.angles + (i * 7 + group - 1) * 2;
        sine = get(angle[0]), cosine = get(angle[1]);
    }
    read_row<MATRIX>(ideal, frame);
#pragma unroll
    for (int row = 0; row < 3; row++) {
        float y = frame[3 * row + 1], z = frame[3 * row + 2];
        frame[3 * row + 1] = y * cosine + z * sine;
        frame[3 * row + 2] = z * cosine - y * sine;
    }
}

/* frame = frame * local. */
__device__ inline void compose(float *frame, const float *local) {
    float out[MATRIX];
#pragma unroll
    for (int i = 0; i < 3; i++)
#pragma unroll
        for (int j = 0; j < 3; j++)
            out[3 * i + j] = frame[3 * i] * local[j] + frame[3 * i + 1] * local[3 + j] +
                             frame[3 * i + 2] * local[6 + j];
    rotate(frame, local + 9, out + 9);
    add3(frame + 9, out + 9);
#pragma unroll
    for (int k = 0; k < 9; k++)
        frame[k] = out[k];
}

/* The frame of one group of residue i: from the backbone down the chain of its parents. */
template <typename T>
__device__ inline void group_frame(const fm_residue_atoms &a, int64_t i, int group, float *frame) {
    matrix_frame((const T *)a.frames + FRAME * i, (float)a.position_scale, frame);
    if (group == 0) return;
    for (int step = min(group, FIRST_CHAINED - 1); step <= group; step++) {
        float local[MATRIX];
        local_frame<T>(a, i, step, local);
        compose(frame, local);
    }
}

template <typename T>
__global__ void __launch_bounds__(SLOTS *RESIDUES) residue_atoms_kernel(fm_residue_atoms a) {
    __shared__ float groups[RESIDUES][GROUPS][MATRIX];
    int slot = threadIdx.x % SLOTS, mine = threadIdx.x / SLOTS;
    int64_t i = blockIdx.x * (int64_t)RESIDUES + mine;
    bool exists = i < a.n;
    if (exists && slot < GROUPS) {
        float frame[MATRIX];
        group_frame<T>(a, i, slot, frame);
        put_row<MATRIX>((T *)a.groups + (i * GROUPS + slot) * MATRIX, FM_WRITE, frame);
        put_row<MATRIX>(groups[mine][slot], FM_WRITE, frame);
    }
    __syncthreads();
    if (!exists || slot >= ATOMS) return;
    float ideal[3], out[3] = {0, 0, 0};
    int at = a.aatype[i] * ATOMS + slot, group = a.atom_group[at];
    if (group < GROUPS) { /* A24:11 */
        read_row<3>(a.atom_positions + 3 * at, ideal);
        rotate(groups[mine][group], ideal, out);
        add3(out, groups[mine][group] + 9);
    }
    put_row<3>((T *)a.atoms + (i * ATOMS + slot) * 3, FM_WRITE, out);
}

template <typename T> void residue_atoms(fm_stream *stream, const fm_residue_atoms *a) {
    unsigned blocks = (unsigned)divide_up(a->n, RESIDUES);
    residue_atoms_kernel<T><<<blocks, SLOTS * RESIDUES, 0, queue(stream)>>>(*a);
    FM_LAUNCHED();
}

/* d = the gradient of one group's frame: the given one, and that of its atoms. */
template <typename T>
__device__ inline void gather_group_grad(const fm_residue_atoms &a, const T *dgroups,
                                         const T *datoms, int64_t i, int group, float *d) {
#pragma unroll
    for (int k = 0; k < MATRIX; k++)
        d[k] = dgroups ? get(dgroups[(i * GROUPS + group) * MATRIX + k]) : 0;
    for (int atom = 0; atom < ATOMS && datoms; atom++) {
        int at = a.aatype[i] * ATOMS + atom;
        if (a.atom_group[at] != group) continue;
        float dx[3], ideal[3];
        read_row<3>(datoms + (i * ATOMS + atom) * 3, dx);
        read_row<3>(a.atom_positions + 3 * at, ideal);
        add_outer(d, dx, ideal);
        add3(d + 9, dx);
    }
}

/* The parent's gradient from a group's gradient d, and the gradient of sine and cosine. */
template <typename T>
__device__ inline void group_grad(const fm_residue_atoms &a, int64_t i, int group,
                                  const float *parent, const float *d, float *dparent,
                                  float *dangle) {
    const float *ideal = a.group_frames + (a.aatype[i] * GROUPS + group) * MATRIX;
    float local[MATRIX], dlocal[9], dturn[9];
    local_frame<T>(a, i, group, local);
#pragma unroll
    for (int r = 0; r < 3; r++)
#pragma unroll
        for (int c = 0; c < 3; c++) {
            dlocal[3 * r + c] =
                parent[r] * d[c] + parent[3 + r] * d[3 + c] + parent[6 + r] * d[6 + c];
            dparent[3 * r + c] = d[3 * r] * local[3 * c] + d[3 * r + 1] * local[3 * c + 1] +
                                 d[3 * r + 2] * local[3 * c + 2];
        }
    add_outer(dparent, d + 9, local + 9);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        dparent[9 + axis] = d[9 + axis];
#pragma unroll
    for (int r = 1; r < 3; r++)
#pragma unroll
        for (int c = 1; c < 3; c++)
            dturn[3 * r + c] =
                ideal[r] * dlocal[c] + ideal[3 + r] * dlocal[3 + c] + ideal[6 + r] * dlocal[6 + c];
    dangle[0] = dturn[7] - dturn[5];
    dangle[1] = dturn[4] + dturn[8];
}

/* Groups 7, 6 and 5 pass their gradients down the chain one after the other, then 4 to 1 at once.
 * The backbone adds these four in order. */
template <typename T>
__global__ void __launch_bounds__(SLOTS *RESIDUES)
    residue_atoms_grad_kernel(fm_residue_atoms a, const T *dgroups, const T *datoms, fm_out dframes,
                              fm_out dangles) {
    __shared__ float frames[RESIDUES][GROUPS][MATRIX], grads[RESIDUES][GROUPS][MATRIX];
    int slot = threadIdx.x % SLOTS, mine = threadIdx.x / SLOTS;
    int64_t i = blockIdx.x * (int64_t)RESIDUES + mine;
    bool works = i < a.n && slot < GROUPS;
    float d[MATRIX], dparent[MATRIX], dangle[2];
    if (works) {
        group_frame<T>(a, i, slot, d);
        put_row<MATRIX>(frames[mine][slot], FM_WRITE, d);
        gather_group_grad(a, dgroups, datoms, i, slot, d);
        put_row<MATRIX>(grads[mine][slot], FM_WRITE, d);
    }
    __syncthreads();
    for (int group = GROUPS - 1; group >= FIRST_CHAINED - 1; group--) {
        bool turn = group >= FIRST_CHAINED ? slot == group : slot < FIRST_CHAINED && slot > 0;
        if (works && turn) {
            int parent = slot < FIRST_CHAINED ? 0 : slot - 1;
            group_grad<T>(a, i, slot, frames[mine][parent], grads[mine][slot], dparent, dangle);
            if (dangles.data) {
                put_row<2>((T *)dangles.data + 14 * i + 2 * (slot - 1), dangles.beta, dangle);
            }
            if (parent > 0) {
                put_row<MATRIX>(grads[mine][parent], FM_ADD, dparent);
            } else {
                put_row<MATRIX>(grads[mine][slot], FM_WRITE, dparent);
            }
        }
        __syncthreads();
    }
    if (!works || slot > 0 || !dframes.data) return;
    for (int group = FIRST_CHAINED - 1; group > 0; group--)
#pragma unroll
        for (int k = 0; k < MATRIX; k++)
            d[k] += grads[mine][group][k];
    matrix_frame_grad((const T *)a.frames + FRAME * i, (float)a.position_scale, d,
                      (T *)dframes.data + FRAME * i, dframes.beta);
}

template <typename T>
void residue_atoms_grad(fm_stream *stream, const fm_residue_atoms *a, const void *dgroups,
                        const void *datoms, fm_out dframes, fm_out dangles) {
    unsigned blocks = (unsigned)divide_up(a->n, RESIDUES);
    residue_atoms_grad_kernel<T><<<blocks, SLOTS * RESIDUES, 0, queue(stream)>>>(
        *a, (const T *)dgroups, (const T *)datoms, dframes, dangles);
    FM_LAUNCHED();
}

template <typename T>
void pseudo_beta(fm_stream *stream, int64_t n, const void *atoms, const uint8_t *aatype, float *y) {
    enum { CA = 1, CB = 4, GLYCINE = 7 };
    const T *x = (const T *)atoms;
    each(stream, 3 * n, [=] __device__(int64_t at) {
        int64_t i = at / 3, axis = at % 3;
        y[at] = get(x[(i * ATOMS + (aatype[i] == GLYCINE ? CA : CB)) * 3 + axis]);
    });
}

#define INSTANTIATE(T)                                                                             \
    template void frame_update<T>(fm_stream *, int64_t, const void *, const void *, void *);       \
    template void frame_update_grad<T>(fm_stream *, int64_t, const void *, const void *,           \
                                       const void *, fm_out, fm_out);                              \
    template void matrix_frames<T>(fm_stream *, int64_t, double, const void *, void *);            \
    template void matrix_frames_grad<T>(fm_stream *, int64_t, double, const void *, const void *,  \
                                        fm_out);                                                   \
    template void unit_pairs<T>(fm_stream *, int64_t, double, const void *, void *);               \
    template void unit_pairs_grad<T>(fm_stream *, int64_t, double, const void *, const void *,     \
                                     fm_out);                                                      \
    template void residue_atoms<T>(fm_stream *, const fm_residue_atoms *);                         \
    template void residue_atoms_grad<T>(fm_stream *, const fm_residue_atoms *, const void *,       \
                                        const void *, fm_out, fm_out);                             \
    template void pseudo_beta<T>(fm_stream *, int64_t, const void *, const uint8_t *, float *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
