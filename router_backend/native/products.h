// Products and attention over threads. The interpreter is never touched here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel_sets.h"

namespace native {

// Multiplications below which waking a second thread costs more than it saves.
constexpr double kWorthSharing = 1 << 18;

// What products need besides their result; kept between calls, for fresh memory costs page faults.
struct Room {
  std::vector<float> row_scales;
  std::vector<std::uint8_t> levels;
};

// y [rows, outputs] = x [rows, inputs] times the matrix, or added to y.
void multiply(const Matrix &matrix, const float *x, float *y, int rows, bool adds, int threads, Room &room);

// Token t sees the first lengths[t] positions of line rows[t] of `tables` [R, columns].
struct Where {
  const std::int64_t *tables, *rows, *lengths;
  std::int64_t lines, columns;
  int tokens;

  // Throws std::invalid_argument where a table, a row or a length leaves its range.
  void check(const Attention &a) const;
};

enum class Cache { single, half };

void attend(const Attention &a, const Where &where, Cache cache, int threads);

}  // namespace native
