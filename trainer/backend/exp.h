/* exp.h: e^x made of additions and multiplications, so that loops vectorise and every machine gives
 * the same bits (the exp of libm differs between versions).
 *
 * x = n ln2 + r, where n is an integer and |r| <= ln2/2. ln2 is subtracted in two parts, so that r
 * is exact enough. e^r is a Taylor polynomial, and 2^n is made by writing the exponent bits. The
 * relative error is below 2 ulp for f32 and for f64 (docs/reference/numerics.md). Where the result
 * would be below the smallest normal number it is 0; above the range it is infinite; NaN stays NaN.
 * Softmax relies on exp(-1e9) being exactly 0. */
#ifndef FM_BACKEND_EXP_H
#define FM_BACKEND_EXP_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float fm_exp_f32(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float bounded = x < -87.0f ? -87.0f : x;
    bounded = bounded > 88.0f ? 88.0f : bounded;
    float shifted = bounded * 1.44269504f + magic;
    float n = shifted - magic;
    float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23; /* the low bits of `shifted` are n; the shift drops its high bits */
    float power;
    memcpy(&power, &bits, sizeof power);
    float y = p * power;
    y = x < -87.0f ? 0.0f : y;
    return x > 88.0f ? INFINITY : y;
}

static inline double fm_exp_f64(double x) {
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double bounded = x < -708.0 ? -708.0 : x;
    bounded = bounded > 709.0 ? 709.0 : bounded;
    double shifted = bounded * 1.4426950408889634 + magic;
    double n = shifted - magic;
    double r = (bounded - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023u) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    double y = p * power;
    y = x < -708.0 ? 0.0 : y;
    return x > 709.0 ? (double)INFINITY : y;
}

#endif
