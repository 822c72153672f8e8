/* f64.c: the CPU kernels for double: the bodies, with `real` defined. See body/real.h. */
#include "trainer/backend/cpu/blas.h"
#include "trainer/backend/cpu/cpu.h"
#include "trainer/backend/exp.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef double real;
#define real_exp fm_exp_f64
#define REAL_SQRT sqrt
#define REAL_LOG log
#define REAL_ATAN atan
#define REAL_GEMM fm_blas_gemm_f64
#define REAL_ELEMENT FM_ELEMENT_F64
#define REAL_NAME "cpu-f64"
#define REAL_TABLE fm_cpu_f64
#define REAL_F32_TABLE &fm_cpu_f32
#define REAL_TF32_TABLE NULL

#include "trainer/backend/cpu/body/memory.h"
#include "trainer/backend/cpu/body/gemm.h"
#include "trainer/backend/cpu/body/rows.h"
#include "trainer/backend/cpu/body/attention.h"
#include "trainer/backend/cpu/body/outer.h"
#include "trainer/backend/cpu/body/triangle.h"
#include "trainer/backend/cpu/body/dropout.h"
#include "trainer/backend/cpu/body/triangle_block.h"
#include "trainer/backend/cpu/body/norm_linear.h"
#include "trainer/backend/cpu/body/row_end.h"
#include "trainer/backend/cpu/body/swiglu_transition.h"
#include "trainer/backend/cpu/body/embed.h"
#include "trainer/backend/cpu/body/rigid.h"
#include "trainer/backend/cpu/body/ipa.h"
#include "trainer/backend/cpu/body/frames.h"
#include "trainer/backend/cpu/body/loss.h"
#include "trainer/backend/cpu/body/fape.h"
#include "trainer/backend/cpu/body/few_grad.h"
#include "trainer/backend/cpu/body/structure_loss.h"
#include "trainer/backend/cpu/body/violation.h"
#include "trainer/backend/cpu/body/atoms.h"
#include "trainer/backend/cpu/body/noisy.h"
#include "trainer/backend/cpu/body/optim.h"
#include "trainer/backend/cpu/body/packet.h"
#include "trainer/backend/cpu/body/table.h"
