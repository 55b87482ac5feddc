// What the engine's inner loops take, and the loops themselves for every instruction set that was compiled.
// Every loop answers the same for a row alone and in any batch: sums run in an order the batch does not touch.

#pragma once

#include <cstddef>
#include <cstdint>

namespace native {

struct Half {
  std::uint16_t bits;
};

constexpr std::int32_t kLevelZero = 128;  // activations are stored as level + 128, unsigned

// Packed weights are [groups, steps, kGroup, depth]: sixteen outputs side by side, one input of each in a step, or
// kLevels of them in int8. So a product reads one unbroken stream, and an activation serves a whole group.
constexpr int kGroup = 16, kLevels = 4;
constexpr int kLayout = 2;  // raised when that order changes: kernels.py takes no module of another
constexpr int kRows = 64;  // of one call of a product, at most

constexpr int whole(int count, int size) { return (count + size - 1) / size; }

enum class Format { single, half, int8 };

// y = x W^T + bias, or y += x W^T + bias.
struct Matrix {
  Format format = Format::single;
  const void *weights = nullptr;
  const float *weight_scales = nullptr;      // int8: one for each output
  const std::int32_t *weight_sums = nullptr;  // int8: of each output's levels
  const float *bias = nullptr;
  int inputs = 0, outputs = 0, groups = 0, steps = 0;

  int depth() const { return format == Format::int8 ? kLevels : 1; }
  // Of a row of activations; levels are padded to whole steps.
  int stride() const { return steps * depth(); }
};

// Rows [rows, stride()] of activations and where their products go.
struct Product {
  const Matrix *matrix;
  const float *x;
  const std::uint8_t *levels;  // int8: x rounded, and the scale of each row
  const float *row_scales;
  float *y;
  int rows;
  bool adds;
};

struct Span {
  int first, last;
};

// Keys and values are [blocks, block_size, kv_heads, head_dim], as float or Half.
struct Attention {
  const float *queries;
  const void *keys, *values;
  float *answer;
  int heads, kv_heads, head_dim, block_size, num_blocks;

  // Floats of what one token's heads make of one span.
  int part_size() const { return heads * (head_dim + 2); }
};

// One token and the positions first .. last - 1 of its row, at most kSpan.
struct Place {
  const std::int64_t *blocks;
  int token, first, last;
};

// Spans are what threads share, and begin at multiples of kSpan whatever the batch: one batch's answers are
// another's. A head's scores of a span stay in the first-level cache.
constexpr int kSpan = 128, kScoresStride = kSpan + 16;
constexpr int kKeyTile = 8, kValueTile = 16;  // positions that are read for one KV head before the next one
constexpr int kAhead = 16;                    // positions from what is read to what is fetched

struct Kernels {
  const char *name;
  void (*product[3])(const Product &, const Span &, int group);  // by Format
  void (*attend[2])(const Attention &, const Place &, float *scores, float *part);  // float, Half
  void (*join_spans)(const Attention &, const float *parts, int count, int token);
  float (*quantised)(const float *x, std::uint8_t *levels, int count);
  void (*normed)(const float *x, const float *weight, float epsilon, float *y, int count);
  void (*gated)(const float *gate, const float *up, float *y, int count);
  void (*rotated)(float *head, const float *turn, int dim);
  void (*halved)(const float *x, Half *y, int count);
};

// The set in use: the widest of this processor until another one is chosen.
const Kernels &kernels();
int num_sets();
const char *set_name(int index);
bool use_set(const char *name);

}  // namespace native
