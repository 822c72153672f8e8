/* params.c: see params.h. */
#include "trainer/model/af3/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

enum { NAME_BYTES = 160 };

fm_scope fm_af3_enter(const fm_scope *scope, const char *name) {
    return fm_scope_enter(scope, name, name, NULL);
}

fm_scope fm_af3_enter_block(const fm_scope *scope, const char *name, int32_t index) {
    char text[NAME_BYTES];
    int n = snprintf(text, sizeof text, "%s.%d.", name, (int)index);
    assert(n > 0 && n < NAME_BYTES);
    (void)n;
    return fm_af3_enter(scope, text);
}

static void set_start(fm_param *param, fm_af3_start start) {
    double fan_in = (double)param->shape[param->rank - 1];
    switch (start) {
    case FM_AF3_ZERO: param->init = FM_INIT_CONSTANT; break;
    case FM_AF3_ONE:
        param->init = FM_INIT_CONSTANT;
        param->init_scale = 1;
        break;
    case FM_AF3_MINUS_TWO:
        param->init = FM_INIT_CONSTANT;
        param->init_scale = -2;
        break;
    case FM_AF3_DEFAULT:
        param->init = FM_INIT_TRUNCATED_NORMAL;
        param->init_scale = sqrt(1 / fan_in);
        break;
    case FM_AF3_HE:
        param->init = FM_INIT_TRUNCATED_NORMAL;
        param->init_scale = sqrt(2 / fan_in);
        break;
    }
}

fm_param_ref fm_af3_block(const fm_scope *scope) {
    return fm_params_add_block(scope->params);
}

static void add(const fm_scope *scope, const char *name, fm_param param, fm_af3_start start) {
    param.name = param.openfold = fm_af3_enter(scope, name).name;
    param.deepmind_layer = -1;
    set_start(&param, start);
    fm_params_add(scope->params, &param);
}

void fm_af3_add(const fm_scope *scope, const char *name, int64_t c_out, int64_t c_in,
                fm_af3_start start) {
    add(scope, name, (fm_param){.rank = c_in ? 2 : 1, .shape = {c_out, c_in}}, start);
}

fm_param_ref fm_af3_add_stack(const fm_scope *scope, const char *name, int64_t n, int64_t c_in,
                              int64_t c_out) {
    fm_param_ref block = fm_af3_block(scope);
    add(scope, name, (fm_param){.rank = 3, .shape = {n, c_in, c_out}}, FM_AF3_ZERO);
    return block;
}

fm_param_ref fm_af3_add_block(const fm_scope *scope, const char *name, int64_t c_out, int64_t c_in,
                              fm_af3_start start) {
    fm_param_ref block = fm_af3_block(scope);
    fm_af3_add(scope, name, c_out, c_in, start);
    return block;
}

fm_linear_weights fm_af3_linear(const fm_scope *scope, const char *name, int64_t c_in,
                                int64_t c_out, fm_af3_start start) {
    fm_scope layer = fm_af3_enter(scope, name);
    return (fm_linear_weights){.w = fm_af3_add_block(&layer, ".weight", c_out, c_in, start),
                               .b = FM_PARAM_NONE,
                               .c_out = c_out};
}

fm_linear_weights fm_af3_linear_with_bias(const fm_scope *scope, const char *name, int64_t c_in,
                                          int64_t c_out, fm_af3_start start,
                                          fm_af3_start bias_start) {
    fm_linear_weights linear = fm_af3_linear(scope, name, c_in, c_out, start);
    fm_scope layer = fm_af3_enter(scope, name);
    linear.b = fm_af3_add_block(&layer, ".bias", c_out, 0, bias_start);
    return linear;
}

fm_param_ref fm_af3_norm(const fm_scope *scope, const char *name, int64_t c) {
    fm_scope norm = fm_af3_enter(scope, name);
    fm_param_ref block = fm_af3_block(scope);
    fm_af3_add(&norm, ".weight", c, 0, FM_AF3_ONE);
    fm_af3_add(&norm, ".bias", c, 0, FM_AF3_ZERO);
    return block;
}
