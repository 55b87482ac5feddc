// numpy arrays as the compiled loops take them: never converted, never copied.

#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "products.h"

namespace py = pybind11;

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

inline void expect(bool is_met, const char *what) {
  if (!is_met) throw py::value_error(what);
}

// float32 or float16 in C order.
inline native::Cache cache_of(const py::array &numbers) {
  expect(numbers.flags() & py::array::c_style, "keys and values must lie in C order");
  if (py::isinstance<py::array_t<float>>(numbers)) return native::Cache::single;
  expect(numbers.dtype().kind() == 'f' && numbers.itemsize() == sizeof(native::Half), "keys and values: float32 or float16");
  return native::Cache::half;
}

// What `where` = (tables, rows, lengths) says; the arrays must outlive it.
struct WhereArrays {
  Array<std::int64_t> tables, rows, lengths;

  explicit WhereArrays(const py::tuple &where)
      : tables(where[0].cast<Array<std::int64_t>>()),
        rows(where[1].cast<Array<std::int64_t>>()),
        lengths(where[2].cast<Array<std::int64_t>>()) {
    expect(tables.ndim() == 2 && rows.size() == lengths.size(), "tables [R, B], a row and a length for each token");
  }

  native::Where view() const {
    return {tables.data(), rows.data(), lengths.data(), tables.shape(0), tables.shape(1), static_cast<int>(rows.size())};
  }
};

void bind_network(py::module_ &module);
