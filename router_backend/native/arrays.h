// numpy arrays to vectors and back, and what the two halves of the compiled solver share.

#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace py = pybind11;

template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T>
inline std::vector<T> to_vector(const py::object &object) {
  const auto array = Array<T>::ensure(object);
  if (!array) throw py::type_error("expected an array of numbers");
  return {array.data(), array.data() + array.size()};
}

// Hands the buffer of a vector to numpy without a copy.
template <typename T>
inline py::array_t<T> to_array(std::vector<T> &&values, std::vector<py::ssize_t> shape) {
  auto *owner = new std::vector<T>(std::move(values));
  py::capsule release(owner, [](void *pointer) { delete static_cast<std::vector<T> *>(pointer); });
  return py::array_t<T>(std::move(shape), owner->data(), release);
}

py::array_t<double> stationary_distribution(const py::object &row_start, const py::object &successor,
                                            const py::object &probability);
