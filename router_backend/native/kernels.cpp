// The engine's hot loops on a CPU: products with packed weights and attention over paged keys and values.
// Each answers the same for a row alone and in any batch: sums run in an order that the batch does not touch.
// What is correct is defined by `kernels_plain.py`. The interpreter lock is released while they run.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "workers.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TR_X86 1
#include <immintrin.h>
#endif

namespace py = pybind11;

namespace {

struct Half {
  std::uint16_t bits;
};

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

constexpr std::int32_t kLevelZero = 128;  // activations are stored as level + 128, unsigned

// Packed weights are [groups, chunks, kGroup, kChunk]: four outputs side by side, so that a product reads one
// unbroken stream; rows of their own would be too short for the processor to fetch ahead.
constexpr int kGroup = 4, kChunk = 64;

struct Product {
  int rows, inputs, outputs, groups, chunks;

  // Activations are padded to whole chunks.
  int stride() const { return chunks * kChunk; }
};

struct Span {
  int first, last;
};

struct Int8Product {
  Product shape;
  const std::int8_t *weights;
  const float *weight_scales;
  const std::int32_t *weight_sums;
  const std::uint8_t *levels;
  const float *row_scales;
};

struct Attention {
  const float *queries, *keys, *values;
  float *answer;
  int heads, kv_heads, head_dim, block_size;
};

// One token under some of its KV heads: it sees positions 0 .. length - 1.
struct Place {
  const std::int64_t *blocks;
  int token, length, kv_first, kv_last;
};

namespace portable {
#define TR_LANES 4
#define TR_ROWS 2
#include "tiles.inc"
}  // namespace portable

#if TR_X86
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {
#define TR_LANES 8
#define TR_ROWS 2
#include "tiles.inc"
}  // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,prefer-vector-width=512")
namespace avx512 {
#define TR_LANES 16
#define TR_ROWS 4
#define TR_VNNI 1
#include "tiles.inc"
#undef TR_VNNI
}  // namespace avx512
#pragma GCC pop_options
#endif

struct Kernels {
  const char *name;
  void (*half)(const Half *, const float *, float *, const Product &, const Span &, int);
  void (*single)(const float *, const float *, float *, const Product &, const Span &, int);
  void (*int8)(const Int8Product &, float *, const Span &, int);
  void (*attend)(const Attention &, const Place &, float *, int);
};

const Kernels kAll[] = {
    {"portable", portable::float_group<Half>, portable::float_group<float>, portable::int8_group,
     portable::attend_one},
#if TR_X86
    {"avx2", avx2::float_group<Half>, avx2::float_group<float>, avx2::int8_group, avx2::attend_one},
    {"avx512", avx512::float_group<Half>, avx512::float_group<float>, avx512::int8_group,
     avx512::attend_one},
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

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

void expect(bool is_met, const char *what) {
  if (!is_met) throw py::value_error(what);
}

template <typename T>
Product product_of(const Array<T> &weights, const Array<float> &x, const Array<float> &y) {
  expect(weights.ndim() == 4 && x.ndim() == 2 && y.ndim() == 2, "weights must have four dimensions, x and y two");
  const Product p{static_cast<int>(x.shape(0)), static_cast<int>(x.shape(1)), static_cast<int>(y.shape(1)),
                  static_cast<int>(weights.shape(0)), static_cast<int>(weights.shape(1))};
  expect(weights.shape(2) == kGroup && weights.shape(3) == kChunk && y.shape(0) == p.rows &&
             p.groups == (p.outputs + kGroup - 1) / kGroup && p.chunks == (p.inputs + kChunk - 1) / kChunk,
         "weights [G, C, 4, 64], x [T, K] and y [T, N] disagree");
  return p;
}

// Groups of one piece: small enough that two threads end together.
constexpr int kPiece = 8;
// Rows that stay in the second-level cache while the groups of a piece pass by.
constexpr int kRows = 64;
// Multiplications below which waking a second thread costs more than it saves.
constexpr double kWorthSharing = 1 << 18;

template <typename Body>
void over_groups(const Product &p, int threads, Body &&body) {
  const double work = static_cast<double>(p.rows) * p.inputs * p.outputs;
  in_pieces((p.groups + kPiece - 1) / kPiece, work < kWorthSharing ? 1 : threads, [&](int piece) {
    const int last = std::min((piece + 1) * kPiece, p.groups);
    for (int row = 0; row < p.rows; row += kRows)
      for (int group = piece * kPiece; group < last; ++group) body(Span{row, std::min(row + kRows, p.rows)}, group);
  });
}

// The activations themselves where their rows are whole chunks, else a padded copy in `room`.
const float *whole_chunks(const float *x, const Product &p, std::vector<float> &room) {
  if (p.stride() == p.inputs) return x;
  room.assign(static_cast<std::size_t>(p.rows) * p.stride(), 0.0f);
  for (int m = 0; m < p.rows; ++m)
    std::copy_n(x + static_cast<std::size_t>(m) * p.inputs, p.inputs, room.data() + static_cast<std::size_t>(m) * p.stride());
  return room.data();
}

template <typename W, typename Group>
void linear_float(const W *w, const Array<float> &x, Array<float> &y, const Product &p, int threads, Group group) {
  const float *given = x.data();
  float *to = y.mutable_data();
  const py::gil_scoped_release released;
  std::vector<float> room;
  const float *from = whole_chunks(given, p, room);
  over_groups(p, threads, [&](const Span &rows, int number) { group(w, from, to, p, rows, number); });
}

void linear_half(const Array<std::uint16_t> &weights, const Array<float> &x, Array<float> &y, int threads) {
  const Half *w = reinterpret_cast<const Half *>(weights.data());
  linear_float(w, x, y, product_of(weights, x, y), threads, kAll[chosen].half);
}

void linear_single(const Array<float> &weights, const Array<float> &x, Array<float> &y, int threads) {
  linear_float(weights.data(), x, y, product_of(weights, x, y), threads, kAll[chosen].single);
}

// Rounds a row to levels -127 .. 127 (stored + 128) and returns its scale; NaN and infinity give a NaN scale.
float quantised(const float *x, std::uint8_t *levels, int inputs) {
  float largest = 0;
  bool is_finite = true;
  for (int i = 0; i < inputs; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    is_finite &= std::isfinite(x[i]);
  }
  if (!is_finite || largest == 0) {
    std::fill(levels, levels + inputs, static_cast<std::uint8_t>(kLevelZero));
    return is_finite ? 0.0f : NAN;
  }
  const float inverse = 127.0f / largest;
  for (int i = 0; i < inputs; ++i)
    levels[i] = static_cast<std::uint8_t>(static_cast<int>(std::nearbyint(x[i] * inverse)) + kLevelZero);
  return largest / 127.0f;
}

void linear_int8(const Array<std::int8_t> &weights, const Array<float> &scales, const Array<std::int32_t> &sums,
                 const Array<float> &x, const py::tuple &call) {
  auto y = call[0].cast<Array<float>>();
  const int threads = call[1].cast<int>();
  const Product p = product_of(weights, x, y);
  expect(scales.size() == p.outputs && sums.size() == p.outputs, "scales and sums must be [N]");
  const float *from = x.data();
  float *to = y.mutable_data();
  const auto group = kAll[chosen].int8;
  std::vector<std::uint8_t> levels(static_cast<std::size_t>(p.rows) * p.stride());
  std::vector<float> row_scales(p.rows);
  const Int8Product job{p, weights.data(), scales.data(), sums.data(), levels.data(), row_scales.data()};
  const py::gil_scoped_release released;
  for (int m = 0; m < p.rows; ++m)
    row_scales[m] = quantised(from + static_cast<std::size_t>(m) * p.inputs,
                              levels.data() + static_cast<std::size_t>(m) * p.stride(), p.inputs);
  over_groups(p, threads, [&](const Span &rows, int number) { group(job, to, rows, number); });
}

// queries, answer [T, H, D]; keys, values [num_blocks, block_size, K, D]; token t sees the first lengths[t]
// positions of tables[rows[t]].
void paged_attention(const Array<float> &queries, const Array<float> &keys, const Array<float> &values,
                     const py::tuple &where, const py::tuple &call) {
  const auto tables = where[0].cast<Array<std::int64_t>>();
  const auto rows = where[1].cast<Array<std::int64_t>>(), lengths = where[2].cast<Array<std::int64_t>>();
  auto answer = call[0].cast<Array<float>>();
  const int threads = call[1].cast<int>();
  expect(queries.ndim() == 3 && keys.ndim() == 4 && values.ndim() == 4 && tables.ndim() == 2,
         "queries [T, H, D], keys and values [blocks, size, K, D], tables [R, B]");
  const int tokens = static_cast<int>(queries.shape(0));
  const Attention a{queries.data(), keys.data(), values.data(), answer.mutable_data(),
                    static_cast<int>(queries.shape(1)), static_cast<int>(keys.shape(2)),
                    static_cast<int>(queries.shape(2)), static_cast<int>(keys.shape(1))};
  expect(answer.size() == queries.size() && rows.size() == tokens && lengths.size() == tokens &&
             a.heads % a.kv_heads == 0 && keys.shape(3) == a.head_dim && values.size() == keys.size(),
         "shapes disagree");
  std::int64_t longest = 0, positions = 0;
  for (int t = 0; t < tokens; ++t) {
    longest = std::max(longest, lengths.at(t));
    positions += lengths.at(t);
    expect(rows.at(t) >= 0 && rows.at(t) < tables.shape(0) && lengths.at(t) > 0, "row or length out of range");
  }
  expect(longest <= tables.shape(1) * a.block_size, "a length exceeds its block table");
  for (py::ssize_t i = 0; i < tables.size(); ++i)
    expect(tables.data()[i] >= 0 && tables.data()[i] < keys.shape(0), "block out of range");
  const bool is_small = static_cast<double>(positions) * a.heads * a.head_dim < kWorthSharing;
  const int stride = static_cast<int>((longest + 15) / 16 * 16);
  const auto attend = kAll[chosen].attend;
  const std::int64_t *table = tables.data(), *row = rows.data(), *length = lengths.data();
  const std::int64_t columns = tables.shape(1);
  const py::gil_scoped_release released;
  // All heads of a token read memory as one stream; few tokens are cut by heads so that no thread is idle.
  const int cut = tokens % threads == 0 || tokens > 4 * threads ? 1 : a.kv_heads, heads = a.kv_heads / cut;
  in_pieces(tokens * cut, is_small ? 1 : threads, [&](int piece) {
    thread_local std::vector<float> scores;
    scores.resize(static_cast<std::size_t>(stride) * a.heads);
    const int token = piece / cut, first = piece % cut * heads;
    const Place place{table + row[token] * columns, token, static_cast<int>(length[token]), first, first + heads};
    attend(a, place, scores.data(), stride);
  });
}

// Row r of `tables` [R, B] becomes the first counts[r] numbers of blocks[r], then zeros: ten times faster than
// numpy reads a list, and a long context has hundreds of blocks in every step.
void fill_tables(Array<std::int64_t> &tables, const py::list &blocks, const Array<std::int64_t> &counts) {
  expect(tables.ndim() == 2 && counts.size() == tables.shape(0) &&
             static_cast<py::ssize_t>(blocks.size()) == tables.shape(0), "tables [R, B], blocks and counts disagree");
  std::int64_t *line = tables.mutable_data();
  for (py::ssize_t r = 0; r < tables.shape(0); ++r, line += tables.shape(1)) {
    PyObject *row = PyList_GET_ITEM(blocks.ptr(), r);
    expect(PyList_Check(row), "the blocks of a row are a list");
    const std::int64_t count = counts.at(r);
    expect(count <= tables.shape(1) && count <= PyList_GET_SIZE(row), "more blocks are wanted than there are");
    for (std::int64_t i = 0; i < count; ++i) line[i] = PyLong_AsLongLong(PyList_GET_ITEM(row, i));
    std::fill(line + count, line + tables.shape(1), 0);
  }
  if (PyErr_Occurred()) throw py::error_already_set();
}

py::list instruction_sets() {
  py::list names;
  for (int i = 0; i <= widest(); ++i) names.append(kAll[i].name);
  return names;
}

void use(const std::string &name) {
  for (int i = 0; i <= widest(); ++i)
    if (name == kAll[i].name) {
      chosen = i;
      return;
    }
  throw py::value_error(name + " is not an instruction set of this processor");
}

}  // namespace

PYBIND11_MODULE(_kernels, module) {
  module.doc() = "Compiled twin of kernels_plain.py";
  module.def("linear_half", &linear_half, py::arg("weights").noconvert(), py::arg("x").noconvert(),
             py::arg("y").noconvert(), py::arg("threads"));
  module.def("linear_single", &linear_single, py::arg("weights").noconvert(), py::arg("x").noconvert(),
             py::arg("y").noconvert(), py::arg("threads"));
  module.def("linear_int8", &linear_int8, py::arg("weights").noconvert(), py::arg("scales").noconvert(),
             py::arg("sums").noconvert(), py::arg("x").noconvert(), py::arg("call"));
  module.def("paged_attention", &paged_attention, py::arg("queries").noconvert(), py::arg("keys").noconvert(),
             py::arg("values").noconvert(), py::arg("where"), py::arg("call"));
  module.def("fill_tables", &fill_tables, py::arg("tables").noconvert(), py::arg("blocks"),
             py::arg("counts").noconvert());
  module.def("instruction_sets", &instruction_sets, "What `use` may be called with, narrowest first");
  module.def("use", &use, "Choose an instruction set; the widest is in use at first");
}
