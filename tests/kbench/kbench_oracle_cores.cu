/* kbench_oracle_cores.cu: naive attention, outer product mean and triangle multiplication: one
 * thread per element of each tensor, f32 operands, sums in f64. Logits and outer products are
 * stored whole in the workspace. */
#include "tests/kbench/kbench_oracle.cuh"
#include "trainer/backend/triangle_block.h"

namespace kbench {

using fm_cuda::carver;
using fm_cuda::each;

/* -- attention */

/* The tensors of a call: [group, batch, head, query, key], and rows of it. */
struct space {
    float *p, *ds;   /* probabilities; gradient of the logits */
    float *o, *dout; /* [rows, c]: the ungated output and its gradient */
    float *valid;    /* [group, batch]: whether a key is */
};

static size_t carve(const fm_attention *a, bool backward, void *base, space *ret) {
    carver c = {(char *)base, 0};
    size_t rows = (size_t)(a->n_group * a->n_batch * a->n_head * a->n_query);
    ret->p = (float *)c.take(rows * (size_t)a->n_key * 4);
    ret->o = (float *)c.take(rows * (size_t)a->c_head * 4);
    ret->valid = (float *)c.take((size_t)(a->n_group * a->n_batch) * 4);
    if (!backward) return c.used;
    ret->ds = (float *)c.take(rows * (size_t)a->n_key * 4);
    ret->dout = (float *)c.take(rows * (size_t)a->c_head * 4);
    return c.used;
}

static size_t attention_workspace(const fm_attention *a) {
    space s;
    return carve(a, false, NULL, &s);
}

static size_t attention_grad_workspace(const fm_attention *a) {
    space s;
    return carve(a, true, NULL, &s);
}

/* Indices of row i of [group, batch, head, query]. */
struct place {
    int64_t group, batch, head, kv_head, query;
};

__device__ static place place_of(const fm_attention &a, int64_t i) {
    place p;
    p.query = i % a.n_query, i /= a.n_query;
    p.head = i % a.n_head, i /= a.n_head;
    p.batch = i % a.n_batch, p.group = i / a.n_batch;
    p.kv_head = a.n_kv_head == 1 ? 0 : p.head;
    return p;
}

__device__ static int64_t row_of(const fm_attention_stride &s, const place &p, int64_t row,
                                 int64_t head) {
    return p.group * s.group + p.batch * s.batch + row * s.row + head * s.head;
}

__device__ static int64_t bias_of(const fm_attention &a, const place &p, int64_t key) {
    return p.group * a.bias_stride[0] + p.head * a.bias_stride[1] + p.query * a.bias_stride[2] +
           key * a.bias_stride[3];
}

static void find_probabilities(fm_stream *stream, const fm_attention &a, const space &s) {
    int64_t rows = a.n_group * a.n_batch * a.n_head * a.n_query;
    each(stream, a.n_group * a.n_batch, [=] __device__(int64_t i) {
        bool any = !a.mask;
        for (int64_t k = 0; k < a.n_key && a.mask; k++)
            any |=
                ((const float *)a.mask)[i / a.n_batch * a.mask_stride[0] +
                                        i % a.n_batch * a.mask_stride[1] + k * a.mask_stride[2]] !=
                0;
        s.valid[i] = any;
    });
    each(stream, rows * a.n_key, [=] __device__(int64_t i) {
        int64_t key = i % a.n_key;
        place p = place_of(a, i / a.n_key);
        const float *q = (const float *)a.q + row_of(a.q_stride, p, p.query, p.head);
        const float *k = (const float *)a.k + row_of(a.k_stride, p, key, p.kv_head);
        double sum = 0;
        for (int64_t c = 0; c < a.c_head; c++)
            sum += (double)q[c] * k[c];
        sum *= a.scale;
        if (a.bias) sum += ((const float *)a.bias)[bias_of(a, p, key)];
        if (a.mask && s.valid[p.group * a.n_batch + p.batch] != 0) {
            sum += a.mask_value *
                   (((const float *)a.mask)[p.group * a.mask_stride[0] +
                                            p.batch * a.mask_stride[1] + key * a.mask_stride[2]] -
                    1.0);
        }
        s.p[i] = (float)sum;
    });
    each(stream, rows, [=] __device__(int64_t row) {
        float *p = s.p + row * a.n_key;
        double largest = -INFINITY, total = 0;
        for (int64_t k = 0; k < a.n_key; k++)
            largest = fmax(largest, (double)p[k]);
        for (int64_t k = 0; k < a.n_key; k++)
            total += exp(p[k] - largest);
        ((float *)a.lse)[row] = (float)(largest + log(total));
        for (int64_t k = 0; k < a.n_key; k++)
            p[k] = (float)(exp(p[k] - largest) / total);
    });
    each(stream, rows * a.c_head, [=] __device__(int64_t i) {
        int64_t row = i / a.c_head, c = i % a.c_head;
        place p = place_of(a, row);
        double sum = 0;
        for (int64_t k = 0; k < a.n_key; k++)
            sum += (double)s.p[row * a.n_key + k] *
                   ((const float *)a.v)[row_of(a.v_stride, p, k, p.kv_head) + c];
        s.o[i] = (float)sum;
    });
}

static void attention(fm_stream *stream, const fm_attention *args, void *workspace) {
    fm_attention a = *args;
    space s;
    carve(args, false, workspace, &s);
    find_probabilities(stream, a, s);
    each(stream, a.n_group * a.n_batch * a.n_head * a.n_query * a.c_head,
         [=] __device__(int64_t i) {
             int64_t c = i % a.c_head;
             place p = place_of(a, i / a.c_head);
             double o = s.o[i];
             if (a.g) {
                 o *= sigmoid(((const float *)a.g)[row_of(a.g_stride, p, p.query, p.head) + c]);
             }
             ((float *)a.o)[row_of(a.o_stride, p, p.query, p.head) + c] = act_of(o);
         });
}

/* dg, the gradient of the ungated output, and that of the logits. */
static void find_logit_gradients(fm_stream *stream, const fm_attention &a,
                                 const fm_attention_grad &g, const space &s) {
    int64_t rows = a.n_group * a.n_batch * a.n_head * a.n_query;
    each(stream, rows * a.c_head, [=] __device__(int64_t i) {
        int64_t c = i % a.c_head;
        place p = place_of(a, i / a.c_head);
        double d = ((const float *)g.dout)[row_of(a.o_stride, p, p.query, p.head) + c], gate = 1;
        if (a.g) {
            int64_t at = row_of(a.g_stride, p, p.query, p.head) + c;
            gate = sigmoid(((const float *)a.g)[at]);
            if (g.dg.data) put_act(g.dg.data, at, g.dg.beta, d * s.o[i] * gate * (1 - gate));
        }
        s.dout[i] = (float)(d * gate);
    });
    each(stream, rows * a.n_key, [=] __device__(int64_t i) {
        int64_t row = i / a.n_key;
        place p = place_of(a, row);
        const float *v = (const float *)a.v + row_of(a.v_stride, p, i % a.n_key, p.kv_head);
        double dp = 0, delta = 0; /* delta = <dout, o> */
        for (int64_t c = 0; c < a.c_head; c++) {
            double d = s.dout[row * a.c_head + c];
            dp += d * v[c], delta += d * s.o[row * a.c_head + c];
        }
        s.ds[i] = (float)(s.p[i] * (dp - delta));
    });
}

static void find_key_gradients(fm_stream *stream, const fm_attention &a, const fm_attention_grad &g,
                               const space &s) {
    each(stream, a.n_group * a.n_batch * a.n_kv_head * a.n_key * a.c_head,
         [=] __device__(int64_t i) {
             int64_t c = i % a.c_head, key = i / a.c_head % a.n_key;
             int64_t at = i / a.c_head / a.n_key, shared = a.n_head / a.n_kv_head;
             place p = {at / a.n_kv_head / a.n_batch, at / a.n_kv_head % a.n_batch, 0,
                        at % a.n_kv_head, 0};
             double dk = 0, dv = 0;
             for (int64_t head = p.kv_head * shared; head < (p.kv_head + 1) * shared; head++) {
                 int64_t row = ((p.group * a.n_batch + p.batch) * a.n_head + head) * a.n_query;
                 for (int64_t q = 0; q < a.n_query; q++, row++) {
                     dk += (double)s.ds[row * a.n_key + key] *
                           ((const float *)a.q)[row_of(a.q_stride, p, q, head) + c];
                     dv += (double)s.p[row * a.n_key + key] * s.dout[row * a.c_head + c];
                 }
             }
             if (g.dk.data) {
                 put_act(g.dk.data, row_of(a.k_stride, p, key, p.kv_head) + c, g.dk.beta,
                         a.scale * dk);
             }
             if (g.dv.data) {
                 put_act(g.dv.data, row_of(a.v_stride, p, key, p.kv_head) + c, g.dv.beta, dv);
             }
         });
}

static void attention_grad(fm_stream *stream, const fm_attention *args,
                           const fm_attention_grad *grads, void *workspace) {
    fm_attention a = *args;
    fm_attention_grad g = *grads;
    space s;
    carve(args, true, workspace, &s);
    find_probabilities(stream, a, s);
    find_logit_gradients(stream, a, g, s);
    find_key_gradients(stream, a, g, s);
    int64_t rows = a.n_group * a.n_batch * a.n_head * a.n_query;
    if (g.dq.data) {
        each(stream, rows * a.c_head, [=] __device__(int64_t i) {
            int64_t row = i / a.c_head, c = i % a.c_head;
            place p = place_of(a, row);
            double sum = 0;
            for (int64_t k = 0; k < a.n_key; k++)
                sum += (double)s.ds[row * a.n_key + k] *
                       ((const float *)a.k)[row_of(a.k_stride, p, k, p.kv_head) + c];
            put_act(g.dq.data, row_of(a.q_stride, p, p.query, p.head) + c, g.dq.beta,
                    a.scale * sum);
        });
    }
    int64_t pairs = a.n_head * a.n_query * a.n_key;
    if (g.dbias.data) {
        each(stream, a.n_group * pairs, [=] __device__(int64_t i) {
            int64_t group = i / pairs, key = i % a.n_key;
            double sum = 0;
            for (int64_t batch = 0; batch < a.n_batch; batch++)
                sum += s.ds[(group * a.n_batch + batch) * pairs + i % pairs];
            place p = place_of(a, group * a.n_batch * a.n_head * a.n_query + i % pairs / a.n_key);
            put_act(g.dbias.data, bias_of(a, p, key), g.dbias.beta, sum);
        });
    }
}

/* -- outer product mean */

/* Parts of the workspace. */
struct outer_space {
    float *t, *dt; /* [i, j, c, c]: the products, and their gradient */
    float *norm;   /* [i, j] */
    float *scaled; /* [i, j, c_z]: dz over the norm */
};

static size_t carve_outer(const fm_outer *o, bool backward, void *base, outer_space *ret) {
    carver c = {(char *)base, 0};
    size_t pairs = (size_t)(o->n_i * o->n_j), square = (size_t)(o->c * o->c);
    ret->t = (float *)c.take(pairs * square * 4);
    ret->norm = (float *)c.take(pairs * 4);
    if (!backward) return c.used;
    ret->dt = (float *)c.take(pairs * square * 4);
    ret->scaled = (float *)c.take(pairs * (size_t)o->c_z * 4);
    return c.used;
}

static size_t outer_workspace(const fm_outer *o) {
    outer_space space;
    return carve_outer(o, false, NULL, &space);
}

static size_t outer_grad_workspace(const fm_outer *o) {
    outer_space space;
    return carve_outer(o, true, NULL, &space);
}

static void find_products(fm_stream *stream, const fm_outer &o, const outer_space &space) {
    each(stream, o.n_i * o.n_j, [=] __device__(int64_t at) {
        int64_t i = at / o.n_j, j = at % o.n_j;
        double norm = o.eps;
        for (int64_t s = 0; s < o.n_seq; s++)
            norm += (double)((const float *)o.mask_a)[s * o.n_i + i] *
                    ((const float *)o.mask_b)[s * o.n_j + j];
        space.norm[at] = (float)norm;
    });
    each(stream, o.n_i * o.n_j * o.c * o.c, [=] __device__(int64_t at) {
        int64_t cb = at % o.c, ca = at / o.c % o.c, j = at / o.c / o.c % o.n_j;
        int64_t i = at / o.c / o.c / o.n_j;
        const float *a = (const float *)o.a + i * o.a_stride[1] + ca;
        const float *b = (const float *)o.b + j * o.b_stride[1] + cb;
        double sum = 0;
        for (int64_t s = 0; s < o.n_seq; s++)
            sum += (double)a[s * o.a_stride[0]] * b[s * o.b_stride[0]] *
                   ((const float *)o.mask_a)[s * o.n_i + i] *
                   ((const float *)o.mask_b)[s * o.n_j + j];
        space.t[at] = (float)sum;
    });
}

static void outer(fm_stream *stream, const fm_outer *args, void *workspace) {
    fm_outer o = *args;
    outer_space space;
    carve_outer(args, false, workspace, &space);
    find_products(stream, o, space);
    each(stream, o.n_i * o.n_j * o.c_z, [=] __device__(int64_t at) {
        int64_t z = at % o.c_z, pair = at / o.c_z, square = o.c * o.c;
        double sum = ((const float *)o.bias)[z];
        for (int64_t c = 0; c < square; c++)
            sum += (double)((const float *)o.w)[z * square + c] * space.t[pair * square + c];
        double residual = o.residual ? ((const float *)o.residual)[at] : 0;
        put_act(o.z.data, at, o.z.beta, sum / space.norm[pair] + residual);
    });
}

/* dt from dz and W, as [i, j, channel of a, channel of b] or, for da, the last two exchanged. */
static void find_product_gradients(fm_stream *stream, const fm_outer &o, const outer_space &space,
                                   bool exchanged) {
    int64_t square = o.c * o.c;
    each(stream, o.n_i * o.n_j * square, [=] __device__(int64_t at) {
        int64_t pair = at / square, c = at % square;
        if (exchanged) c = c % o.c * o.c + c / o.c;
        double sum = 0;
        for (int64_t z = 0; z < o.c_z; z++)
            sum += (double)((const float *)o.w)[z * square + c] * space.scaled[pair * o.c_z + z];
        space.dt[at] = (float)sum;
    });
}

static void find_weight_gradients(fm_stream *stream, const fm_outer &o, const fm_outer_grad &g,
                                  const outer_space &space) {
    int64_t square = o.c * o.c, pairs = o.n_i * o.n_j;
    if (g.dw.data) {
        each(stream, o.c_z * square, [=] __device__(int64_t at) {
            double sum = 0;
            for (int64_t pair = 0; pair < pairs; pair++)
                sum += (double)space.scaled[pair * o.c_z + at / square] *
                       space.t[pair * square + at % square];
            put(g.dw.data, at, g.dw.beta, sum);
        });
    }
    if (g.dbias.data) {
        each(stream, o.c_z * 32, [=] __device__(int64_t at) {
            double sum = 0;
            for (int64_t pair = at % 32; pair < pairs; pair += 32)
                sum += space.scaled[pair * o.c_z + at / 32];
            sum = fm_cuda::warp_sum(sum);
            if (at % 32 == 0) put(g.dbias.data, at / 32, g.dbias.beta, sum);
        });
    }
}

static void outer_grad(fm_stream *stream, const fm_outer *args, const fm_outer_grad *grads,
                       void *workspace) {
    fm_outer o = *args;
    fm_outer_grad g = *grads;
    int64_t square = o.c * o.c;
    outer_space space;
    carve_outer(args, true, workspace, &space);
    find_products(stream, o, space);
    each(stream, o.n_i * o.n_j * o.c_z, [=] __device__(int64_t at) {
        space.scaled[at] = ((const float *)g.dz)[at] / space.norm[at / o.c_z];
    });
    find_weight_gradients(stream, o, g, space);
    find_product_gradients(stream, o, space, true);
    if (g.da.data) {
        each(stream, o.n_seq * o.n_i * o.c, [=] __device__(int64_t at) {
            int64_t ca = at % o.c, i = at / o.c % o.n_i, s = at / o.c / o.n_i;
            double sum = 0;
            for (int64_t j = 0; j < o.n_j; j++)
                for (int64_t cb = 0; cb < o.c; cb++)
                    sum += (double)space.dt[(i * o.n_j + j) * square + cb * o.c + ca] *
                           ((const float *)o.b)[s * o.b_stride[0] + j * o.b_stride[1] + cb] *
                           ((const float *)o.mask_b)[s * o.n_j + j];
            sum *= ((const float *)o.mask_a)[s * o.n_i + i];
            put_act(g.da.data, s * o.a_stride[0] + i * o.a_stride[1] + ca, g.da.beta, sum);
        });
    }
    find_product_gradients(stream, o, space, false);
    if (g.db.data) {
        each(stream, o.n_seq * o.n_j * o.c, [=] __device__(int64_t at) {
            int64_t cb = at % o.c, j = at / o.c % o.n_j, s = at / o.c / o.n_j;
            double sum = 0;
            for (int64_t i = 0; i < o.n_i; i++)
                for (int64_t ca = 0; ca < o.c; ca++)
                    sum += (double)space.dt[(i * o.n_j + j) * square + ca * o.c + cb] *
                           ((const float *)o.a)[s * o.a_stride[0] + i * o.a_stride[1] + ca] *
                           ((const float *)o.mask_a)[s * o.n_i + i];
            sum *= ((const float *)o.mask_b)[s * o.n_j + j];
            put_act(g.db.data, s * o.b_stride[0] + j * o.b_stride[1] + cb, g.db.beta, sum);
        });
    }
}

/* -- triangle multiplication */

/* a and b after their gates, contiguous; their gradients. */
static size_t triangle_workspace(const fm_triangle *t) {
    return (size_t)((t->n_i + t->n_j) * t->n_k * t->c) * 4;
}

static size_t triangle_grad_workspace(const fm_triangle *t) {
    return 2 * triangle_workspace(t);
}

static void find_operand(fm_stream *stream, int64_t rows, int64_t c, int64_t ld, const void *p,
                         const void *g, const void *mask, float *y) {
    each(stream, rows * c, [=] __device__(int64_t at) {
        int64_t from = at / c * ld + at % c;
        double value = ((const float *)p)[from];
        if (g) value *= ((const float *)mask)[at / c] * sigmoid(((const float *)g)[from]);
        y[at] = (float)value;
    });
}

static void triangle(fm_stream *stream, const fm_triangle *args, void *workspace) {
    fm_triangle t = *args;
    float *a = (float *)workspace, *b = a + t.n_i * t.n_k * t.c;
    find_operand(stream, t.n_i * t.n_k, t.c, t.lda, t.pa, t.ga, t.mask_a, a);
    find_operand(stream, t.n_j * t.n_k, t.c, t.ldb, t.pb, t.gb, t.mask_b, b);
    each(stream, t.n_i * t.n_j * t.c, [=] __device__(int64_t at) {
        int64_t c = at % t.c, j = at / t.c % t.n_j, i = at / t.c / t.n_j;
        double sum = 0;
        for (int64_t k = 0; k < t.n_k; k++) {
            int64_t row_a = t.incoming ? k * t.n_i + i : i * t.n_k + k;
            int64_t row_b = t.incoming ? k * t.n_j + j : j * t.n_k + k;
            sum += (double)a[row_a * t.c + c] * b[row_b * t.c + c];
        }
        ((float *)t.x)[at] = act_of(sum);
    });
}

/* Gradients through the gate of one operand. */
static void put_operand(fm_stream *stream, int64_t rows, int64_t c, int64_t ld, const void *p,
                        const void *g, const void *mask, const float *dy, fm_out dp, fm_out dg) {
    each(stream, rows * c, [=] __device__(int64_t at) {
        int64_t to = at / c * ld + at % c;
        double d = dy[at], s = 1;
        if (g) {
            d *= ((const float *)mask)[at / c];
            s = sigmoid(((const float *)g)[to]);
            if (dg.data) put_act(dg.data, to, dg.beta, d * ((const float *)p)[to] * s * (1 - s));
        }
        if (dp.data) put_act(dp.data, to, dp.beta, d * s);
    });
}

static void triangle_grad(fm_stream *stream, const fm_triangle *args, const fm_triangle_grad *grads,
                          void *workspace) {
    fm_triangle t = *args;
    fm_triangle_grad g = *grads;
    float *a = (float *)workspace, *b = a + t.n_i * t.n_k * t.c;
    float *da = b + t.n_j * t.n_k * t.c, *db = da + t.n_i * t.n_k * t.c;
    const float *dx = (const float *)g.dx;
    find_operand(stream, t.n_i * t.n_k, t.c, t.lda, t.pa, t.ga, t.mask_a, a);
    find_operand(stream, t.n_j * t.n_k, t.c, t.ldb, t.pb, t.gb, t.mask_b, b);
    each(stream, t.n_i * t.n_k * t.c, [=] __device__(int64_t at) {
        int64_t c = at % t.c, row = at / t.c;
        int64_t i = t.incoming ? row % t.n_i : row / t.n_k;
        int64_t k = t.incoming ? row / t.n_i : row % t.n_k;
        double sum = 0;
        for (int64_t j = 0; j < t.n_j; j++)
            sum += (double)dx[(i * t.n_j + j) * t.c + c] *
                   b[(t.incoming ? k * t.n_j + j : j * t.n_k + k) * t.c + c];
        da[at] = (float)sum;
    });
    each(stream, t.n_j * t.n_k * t.c, [=] __device__(int64_t at) {
        int64_t c = at % t.c, row = at / t.c;
        int64_t j = t.incoming ? row % t.n_j : row / t.n_k;
        int64_t k = t.incoming ? row / t.n_j : row % t.n_k;
        double sum = 0;
        for (int64_t i = 0; i < t.n_i; i++)
            sum += (double)dx[(i * t.n_j + j) * t.c + c] *
                   a[(t.incoming ? k * t.n_i + i : i * t.n_k + k) * t.c + c];
        db[at] = (float)sum;
    });
    put_operand(stream, t.n_i * t.n_k, t.c, t.lda, t.pa, t.ga, t.mask_a, da, g.dpa, g.dga);
    put_operand(stream, t.n_j * t.n_k, t.c, t.ldb, t.pb, t.gb, t.mask_b, db, g.dpb, g.dgb);
}

/* -- the whole sublayer of triangle multiplication, of the oracle's other entries */

static size_t block_workspace(const fm_triangle_block *args) {
    return fm_triangle_block_composed_workspace(oracle_table(), args);
}

static void block(fm_stream *stream, const fm_triangle_block *args, void *space) {
    fm_triangle_block_composed(oracle_table(), stream, args, space);
}

static size_t block_grad_workspace(const fm_triangle_block *args) {
    return fm_triangle_block_composed_grad_workspace(oracle_table(), args);
}

static void block_grad(fm_stream *stream, const fm_triangle_block *args,
                       const fm_triangle_block_grad *grad, void *space) {
    fm_triangle_block_composed_grad(oracle_table(), stream, args, grad, space);
}

void cores_round(bool on) {
    set_rounds(on);
}

void oracle_cores(fm_kernels *k) {
    k->triangle_block_kept = fm_triangle_block_composed_kept;
    k->triangle_block_workspace = block_workspace, k->triangle_block = block;
    k->triangle_block_grad_workspace = block_grad_workspace, k->triangle_block_grad = block_grad;
    k->attention_workspace = attention_workspace, k->attention = attention;
    k->attention_grad_workspace = attention_grad_workspace, k->attention_grad = attention_grad;
    k->outer_workspace = outer_workspace, k->outer = outer;
    k->outer_grad_workspace = outer_grad_workspace, k->outer_grad = outer_grad;
    k->triangle_workspace = triangle_workspace, k->triangle = triangle;
    k->triangle_grad_workspace = triangle_grad_workspace, k->triangle_grad = triangle_grad;
}

} // namespace kbench
