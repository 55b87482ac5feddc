#include "products.h"

#include <algorithm>
#include <stdexcept>

#include "workers.h"

namespace native {
namespace {

// Groups of one piece: small enough that two threads end together.
constexpr int kPiece = 2;
// Query numbers times positions below which attention is not shared: some microseconds.
constexpr double kAttentionWorthSharing = 1 << 16;

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

// What attention of a step is cut into. A piece is one span of the tokens first .. end - 1 of one row: what they
// all see is read from memory once.
struct Spans {
  struct Piece {
    int first, end, span;
  };
  std::vector<Piece> pieces;
  std::vector<int> offsets;  // of each token's first part, and of the end
  std::vector<float> parts;
  std::int64_t positions = 0;

  void cut(const Where &where) {
    pieces.clear();
    offsets.assign(1, 0);
    positions = 0;
    for (int first = 0, end; first < where.tokens; first = end) {
      int most = 0;
      for (end = first; end < where.tokens && where.rows[end] == where.rows[first]; ++end) {
        const int count = static_cast<int>((where.lengths[end] + kSpan - 1) / kSpan);
        most = std::max(most, count);
        offsets.push_back(offsets.back() + count);
        positions += where.lengths[end];
      }
      for (int span = 0; span < most; ++span) pieces.push_back({first, end, span});
    }
  }
};

}  // namespace

void multiply(const Matrix &matrix, const float *x, float *y, int rows, bool adds, int threads, Room &room) {
  Product p{&matrix, x, nullptr, nullptr, y, rows, adds};
  if (matrix.format == Format::int8) {
    round_rows(matrix, x, rows, threads, room);
    p.levels = room.levels.data();
    p.row_scales = room.row_scales.data();
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
  thread_local Spans spans;
  spans.cut(where);
  const double work = static_cast<double>(spans.positions) * a.heads * a.head_dim;
  threads = work < kAttentionWorthSharing ? 1 : threads;
  spans.parts.resize(static_cast<std::size_t>(spans.offsets[where.tokens]) * a.part_size());
  float *parts = spans.parts.data();
  const auto attend_span = kernels().attend[static_cast<int>(cache)];
  const auto part = [&, offsets = spans.offsets.data()](int token, int span) {
    return parts + static_cast<std::size_t>(offsets[token] + span) * a.part_size();
  };
  in_pieces(static_cast<int>(spans.pieces.size()), threads, [&, pieces = spans.pieces.data()](int piece) {
    thread_local std::vector<float> scores;
    scores.resize(static_cast<std::size_t>(kScoresStride) * a.heads);
    const auto [first, end, span] = pieces[piece];
    for (int t = first; t < end; ++t) {
      const int last = std::min((span + 1) * kSpan, static_cast<int>(where.lengths[t]));
      if (last <= span * kSpan) continue;
      const Place place{where.tables + where.rows[t] * where.columns, t, span * kSpan, last};
      attend_span(a, place, scores.data(), part(t, span));
    }
  });
  over_rows(where.tokens, static_cast<double>(spans.parts.size()), threads, [&, offsets = spans.offsets.data()](int t) {
    kernels().join_spans(a, part(t, 0), offsets[t + 1] - offsets[t], t);
  });
}

}  // namespace native
