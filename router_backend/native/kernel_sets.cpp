// The inner loops compiled for each instruction set, and the choice between them.

#include "kernel_sets.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TR_X86 1
#include <immintrin.h>
#endif

namespace native {
namespace {

inline float half_to_float(Half half) {
  const std::uint32_t sign = (half.bits & 0x8000u) << 16, exponent = (half.bits >> 10) & 31u;
  const std::uint32_t fraction = half.bits & 1023u;
  std::uint32_t bits = sign | ((exponent + 112u) << 23) | (fraction << 13);
  float value;
  if (exponent == 0) {
    value = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24: subnormal
    return sign ? -value : value;
  }
  if (exponent == 31) bits = sign | 0x7f800000u | (fraction << 13);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// To the nearest, ties to even, as the processor's own conversion.
inline Half float_to_half(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: in steps of 2^-24
    float absolute;
    std::memcpy(&absolute, &magnitude, sizeof absolute);
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(absolute * 16777216.0f)))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

namespace portable {
#define TR_LANES 4
#define TR_ROWS 3
#define TR_INT8_ROWS 2
#include "sets.inc"
}  // namespace portable

#if TR_X86
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#define TR_LANES 8
#define TR_ROWS 6
#define TR_INT8_ROWS 2
#include "sets.inc"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,prefer-vector-width=512")
namespace avx512 {
#define TR_LANES 16
#define TR_ROWS 12
#define TR_INT8_ROWS 12
#define TR_VNNI 1
#include "sets.inc"
#undef TR_VNNI
}  // namespace avx512
#pragma GCC pop_options
#endif

const Kernels kAll[] = {
    portable::kernels_of("portable"),
#if TR_X86
    avx2::kernels_of("avx2"),
    avx512::kernels_of("avx512"),
#endif
};

int widest() {
#if TR_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return 2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return 1;
#endif
  return 0;
}

int chosen = widest();

}  // namespace

const Kernels &kernels() { return kAll[chosen]; }

int num_sets() { return widest() + 1; }

const char *set_name(int index) { return kAll[index].name; }

bool use_set(const char *name) {
  for (int i = 0; i < num_sets(); ++i)
    if (!std::strcmp(name, kAll[i].name)) {
      chosen = i;
      return true;
    }
  return false;
}

}  // namespace native
