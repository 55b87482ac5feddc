#include "products.h"

#include <algorithm>
#include <stdexcept>

#include "workers.h"

namespace native {
namespace {

// Groups of one piece: small enough that two threads end together.
constexpr int kPiece = 8;
// Rows that stay in the second-level cache while the groups of a piece pass by.
constexpr int kRows = 64;

// The activations themselves where their rows are whole chunks, else a padded copy in `room`.
const float *whole_chunks(const Matrix &w, const float *x, int rows, std::vector<float> &room) {
  if (w.stride() == w.inputs) return x;
  const std::size_t stride = w.stride();
  room.assign(rows * stride, 0.0f);
  for (int m = 0; m < rows; ++m) std::copy_n(x + static_cast<std::size_t>(m) * w.inputs, w.inputs, room.data() + m * stride);
  return room.data();
}

void round_rows(const Matrix &w, const float *x, int rows, int threads, Room &room) {
  const std::size_t stride = w.stride();
  room.levels.resize(rows * stride);
  room.row_scales.resize(rows);
  over_rows(rows, static_cast<double>(rows) * w.inputs, threads, [&](int m) {
    std::uint8_t *levels = room.levels.data() + m * stride;
    room.row_scales[m] = kernels().quantised(x + static_cast<std::size_t>(m) * w.inputs, levels, w.inputs);
    std::fill(levels + w.inputs, levels + stride, std::uint8_t{0});
  });
}

}  // namespace

void multiply(const Matrix &matrix, const float *x, float *y, int rows, bool adds, int threads, Room &room) {
  Product p{&matrix, x, nullptr, nullptr, y, rows, adds};
  if (matrix.format == Format::int8) {
    round_rows(matrix, x, rows, threads, room);
    p.levels = room.levels.data();
    p.row_scales = room.row_scales.data();
  } else {
    p.x = whole_chunks(matrix, x, rows, room.padded);
  }
  const auto group = kernels().product[static_cast<int>(matrix.format)];
  const double work = static_cast<double>(rows) * matrix.inputs * matrix.outputs;
  in_pieces((matrix.groups + kPiece - 1) / kPiece, work < kWorthSharing ? 1 : threads, [&](int piece) {
    const int last = std::min((piece + 1) * kPiece, matrix.groups);
    for (int row = 0; row < rows; row += kRows)
      for (int number = piece * kPiece; number < last; ++number)
        group(p, Span{row, std::min(row + kRows, rows)}, number);
  });
}

void Where::check(const Attention &a) const {
  std::int64_t longest = 0;
  for (int t = 0; t < tokens; ++t) {
    longest = std::max(longest, lengths[t]);
    if (rows[t] < 0 || rows[t] >= lines || lengths[t] <= 0) throw std::invalid_argument("row or length out of range");
  }
  if (longest > columns * a.block_size) throw std::invalid_argument("a length exceeds its block table");
  for (std::int64_t i = 0; i < lines * columns; ++i)
    if (tables[i] < 0 || tables[i] >= a.num_blocks) throw std::invalid_argument("block out of range");
}

void attend(const Attention &a, const Where &where, Cache cache, int threads) {
  std::int64_t longest = 0, positions = 0;
  for (int t = 0; t < where.tokens; ++t) {
    longest = std::max(longest, where.lengths[t]);
    positions += where.lengths[t];
  }
  const bool is_small = static_cast<double>(positions) * a.heads * a.head_dim < kWorthSharing;
  const int stride = static_cast<int>((longest + 15) / 16 * 16) + kScoresPast;
  const auto attend_one = kernels().attend[static_cast<int>(cache)];
  // All heads of a token read memory as one stream; few tokens are cut by heads so that no thread is idle.
  const bool is_whole = is_small || where.tokens % threads == 0 || where.tokens > 4 * threads;
  const int cut = is_whole ? 1 : a.kv_heads, heads = a.kv_heads / cut;
  in_pieces(where.tokens * cut, is_small ? 1 : threads, [&](int piece) {
    thread_local std::vector<float> scores;
    scores.resize(static_cast<std::size_t>(stride) * a.heads);
    const int token = piece / cut, first = piece % cut * heads;
    const std::int64_t *blocks = where.tables + where.rows[token] * where.columns;
    attend_one(a, Place{blocks, token, static_cast<int>(where.lengths[token]), first, first + heads}, scores.data(),
               stride);
  });
}

}  // namespace native
