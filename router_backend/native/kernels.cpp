// The engine's hot loops on a CPU, as Python calls them: products with packed weights, attention over paged
// keys and values, whole steps. What is correct is defined by `kernels_plain.py` and `network_plain.py`. The
// interpreter lock is released while they run.

#include <string>

#include "bindings.h"

namespace {

using native::Format;
using native::Matrix;

Matrix matrix_of(Format format, const py::array &weights, const Array<float> &x, const Array<float> &y) {
  expect(weights.ndim() == 4 && x.ndim() == 2 && y.ndim() == 2, "weights must have four dimensions, x and y two");
  Matrix w;
  w.format = format;
  w.weights = weights.data();
  w.inputs = static_cast<int>(x.shape(1));
  w.outputs = static_cast<int>(y.shape(1));
  w.groups = static_cast<int>(weights.shape(0));
  w.steps = static_cast<int>(weights.shape(1));
  expect(weights.shape(2) == native::kGroup && weights.shape(3) == w.depth() && y.shape(0) == x.shape(0) &&
             w.groups == native::whole(w.outputs, native::kGroup) && w.steps == native::whole(w.inputs, w.depth()),
         "weights [G, S, 16, depth], x [T, K] and y [T, N] disagree");
  return w;
}

void linear(const Matrix &w, const Array<float> &x, Array<float> &y, int threads) {
  const float *from = x.data();
  float *to = y.mutable_data();
  const int rows = static_cast<int>(x.shape(0));
  const py::gil_scoped_release released;
  thread_local native::Room room;
  native::multiply(w, from, to, rows, false, threads, room);
}

void linear_half(const Array<std::uint16_t> &weights, const Array<float> &x, Array<float> &y, int threads) {
  linear(matrix_of(Format::half, weights, x, y), x, y, threads);
}

void linear_single(const Array<float> &weights, const Array<float> &x, Array<float> &y, int threads) {
  linear(matrix_of(Format::single, weights, x, y), x, y, threads);
}

void linear_int8(const Array<std::int8_t> &weights, const Array<float> &scales, const Array<std::int32_t> &sums,
                 const Array<float> &x, const py::tuple &call) {
  auto y = call[0].cast<Array<float>>();
  Matrix w = matrix_of(Format::int8, weights, x, y);
  expect(scales.size() == w.outputs && sums.size() == w.outputs, "scales and sums must be [N]");
  w.weight_scales = scales.data();
  w.weight_sums = sums.data();
  linear(w, x, y, call[1].cast<int>());
}

// queries, answer [T, H, D]; keys, values [num_blocks, block_size, K, D]; token t sees the first lengths[t]
// positions of tables[rows[t]].
void paged_attention(const Array<float> &queries, const py::array &keys, const py::array &values,
                     const py::tuple &where, const py::tuple &call) {
  const WhereArrays places(where);
  auto answer = call[0].cast<Array<float>>();
  const int threads = call[1].cast<int>();
  expect(queries.ndim() == 3 && keys.ndim() == 4 && values.ndim() == 4,
         "queries [T, H, D], keys and values [blocks, size, K, D], tables [R, B]");
  const native::Cache cache = cache_of(keys);
  const native::Attention a{queries.data(), keys.data(), values.data(), answer.mutable_data(),
                            static_cast<int>(queries.shape(1)), static_cast<int>(keys.shape(2)),
                            static_cast<int>(queries.shape(2)), static_cast<int>(keys.shape(1)),
                            static_cast<int>(keys.shape(0))};
  expect(cache_of(values) == cache && answer.size() == queries.size() && places.rows.size() == queries.shape(0) &&
             a.heads % a.kv_heads == 0 && keys.shape(3) == a.head_dim && values.size() == keys.size(),
         "shapes disagree");
  const native::Where view = places.view();
  view.check(a);
  const py::gil_scoped_release released;
  native::attend(a, view, cache, threads);
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
  for (int i = 0; i < native::num_sets(); ++i) names.append(native::set_name(i));
  return names;
}

void use(const std::string &name) {
  if (!native::use_set(name.c_str())) throw py::value_error(name + " is not an instruction set of this processor");
}

}  // namespace

PYBIND11_MODULE(_kernels, module) {
  module.doc() = "Compiled twin of kernels_plain.py and network_plain.py";
  module.attr("LAYOUT") = native::kLayout;
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
  bind_network(module);
}
