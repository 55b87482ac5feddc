// A decoder as Python builds it. It keeps the arrays that its weights lie in.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "network.h"

namespace {

using native::Decoder;
using native::Format;
using native::Matrix;

template <typename T>
const T *data(const py::handle &object, py::ssize_t size, const char *what) {
  expect(py::isinstance<Array<T>>(object), what);
  const auto array = py::reinterpret_borrow<Array<T>>(object);
  expect(array.size() == size, what);
  return array.data();
}

template <typename T>
const T *data_or_none(const py::handle &object, py::ssize_t size, const char *what) {
  return object.is_none() ? nullptr : data<T>(object, size, what);
}

// (format, weights [G, S, 16, depth], scales, sums, bias, outputs, inputs)
Matrix matrix_of(const py::handle &object, int outputs, int inputs) {
  const auto parts = object.cast<py::tuple>();
  const auto format = parts[0].cast<std::string>();
  Matrix w;
  w.inputs = inputs;
  w.outputs = outputs ? outputs : parts[5].cast<int>();
  expect(parts[5].cast<int>() == w.outputs && parts[6].cast<int>() == inputs, "a matrix has not the model's shape");
  w.format = format == "int8" ? Format::int8 : format == "half" ? Format::half : Format::single;
  w.groups = native::whole(w.outputs, native::kGroup);
  w.steps = native::whole(inputs, w.depth());
  const py::ssize_t size = static_cast<py::ssize_t>(w.groups) * native::kGroup * w.stride();
  const char *what = "packed weights do not fit their shape";
  if (format == "single") {
    w.weights = data<float>(parts[1], size, what);
  } else if (format == "half") {
    w.weights = data<std::uint16_t>(parts[1], size, what);
  } else {
    expect(format == "int8", "a matrix is single, half or int8");
    w.weights = data<std::int8_t>(parts[1], size, what);
    w.weight_scales = data<float>(parts[2], w.outputs, what);
    w.weight_sums = data<std::int32_t>(parts[3], w.outputs, what);
  }
  w.bias = data_or_none<float>(parts[4], w.outputs, "a bias does not fit its matrix");
  return w;
}

native::Layer layer_of(const py::tuple &parts, const Decoder &d) {
  const int query = d.heads * d.head_dim, turning = (d.heads + d.kv_heads) * d.head_dim;
  const char *what = "a norm does not fit the model";
  return {data<float>(parts[0], d.hidden, what),
          data<float>(parts[1], d.hidden, what),
          data_or_none<float>(parts[2], turning, what),
          matrix_of(parts[3], turning + d.kv_heads * d.head_dim, d.hidden),
          matrix_of(parts[4], d.hidden, query),
          matrix_of(parts[5], 2 * d.feed, d.hidden),
          matrix_of(parts[6], d.hidden, d.feed)};
}

Decoder decoder_of(const py::tuple &shape, const py::tuple &tables, const py::list &layers, const py::handle &head) {
  const auto embed = tables[0].cast<Array<float>>(), turns = tables[1].cast<Array<float>>();
  expect(embed.ndim() == 2 && turns.ndim() == 3 && turns.shape(1) == 2, "embedding [V, E], rope table [L, 2, D]");
  Decoder d{};
  d.hidden = static_cast<int>(embed.shape(1));
  d.heads = shape[0].cast<int>();
  d.kv_heads = shape[1].cast<int>();
  d.head_dim = static_cast<int>(turns.shape(2));
  d.feed = shape[2].cast<int>();
  d.epsilon = shape[3].cast<float>();
  expect(d.kv_heads > 0 && d.heads % d.kv_heads == 0 && d.head_dim % 2 == 0, "heads must be shared evenly, and be even");
  d.embed = embed.data();
  d.turns = turns.data();
  d.norm = data<float>(tables[2], d.hidden, "a norm does not fit the model");
  d.vocabulary = embed.shape(0);
  d.length_max = turns.shape(0);
  for (const auto &layer : layers) d.layers.push_back(layer_of(layer.cast<py::tuple>(), d));
  d.head = matrix_of(head, 0, d.hidden);
  return d;
}

class Network {
 public:
  Network(const py::tuple &shape, const py::tuple &tables, const py::list &layers, const py::tuple &head)
      : kept_(py::make_tuple(tables, layers, head)), forward_(decoder_of(shape, tables, layers, head)) {}

  // `step` = tokens, positions, slots, sampled; `answers` = hidden [R, E] and logits [R, N] or None.
  void forward(const py::tuple &step, const py::object &where, py::array &pool, const py::tuple &answers,
               const py::object &elsewhere, int threads) {
    Array<std::int64_t> index[4];
    for (int i = 0; i < 4; ++i) index[i] = step[i].cast<Array<std::int64_t>>();
    auto hidden = answers[0].cast<Array<float>>();
    const Decoder &d = forward_.decoder();
    const py::ssize_t count = index[0].size(), sampled = index[3].size();
    expect(index[1].size() == count && index[2].size() == count && hidden.size() == sampled * d.hidden,
           "tokens, positions and slots [T], sampled [R] and hidden [R, E] disagree");
    native::Step s{index[0].data(), index[1].data(), index[2].data(), static_cast<int>(count), {}, index[3].data(),
                   static_cast<int>(sampled), hidden.mutable_data(), nullptr};
    if (!answers[1].is_none()) {
      auto logits = answers[1].cast<Array<float>>();
      expect(logits.size() == sampled * d.head.outputs, "logits must be [R, N]");
      s.logits = logits.mutable_data();
    }
    std::unique_ptr<WhereArrays> places;
    if (!where.is_none()) {
      places = std::make_unique<WhereArrays>(where.cast<py::tuple>());
      s.in_place = places->view();
    }
    expect(s.in_place.tokens == s.count || !elsewhere.is_none(), "nobody attends the tokens that are not in place");
    const native::Pool view = pool_of(pool);
    const py::gil_scoped_release released;
    forward_.run(s, view, threads, [&](int layer) { call(elsewhere, layer, s.count); });
  }

 private:
  native::Pool pool_of(py::array &pool) const {
    const Decoder &d = forward_.decoder();
    expect(pool.ndim() == 6 && pool.shape(0) == static_cast<py::ssize_t>(d.layers.size()) && pool.shape(1) == 2 &&
               pool.shape(4) == d.kv_heads && pool.shape(5) == d.head_dim,
           "the pool must be [layers, 2, blocks, size, K, D] of this model");
    const native::Cache cache = cache_of(pool);
    return {pool.mutable_data(), cache, static_cast<int>(pool.shape(2)), static_cast<int>(pool.shape(3))};
  }

  void call(const py::object &elsewhere, int layer, py::ssize_t count) {
    const py::gil_scoped_acquire acquired;
    const Decoder &d = forward_.decoder();
    const py::ssize_t width = static_cast<py::ssize_t>(d.heads) * d.head_dim;
    const py::capsule borrowed(this, [](void *) {});
    const Array<float> queries({count, static_cast<py::ssize_t>(d.heads), static_cast<py::ssize_t>(d.head_dim)},
                               forward_.queries().data(), borrowed);
    const Array<float> attended({count, width}, forward_.attended().data(), borrowed);
    elsewhere(layer, queries, attended);
  }

  py::object kept_;
  native::Forward forward_;
};

}  // namespace

void bind_network(py::module_ &module) {
  py::class_<Network>(module, "Network")
      .def(py::init<const py::tuple &, const py::tuple &, const py::list &, const py::tuple &>(), py::arg("shape"),
           py::arg("tables"), py::arg("layers"), py::arg("head"))
      .def("forward", &Network::forward, py::arg("step"), py::arg("where"), py::arg("pool").noconvert(),
           py::arg("answers"), py::arg("elsewhere"), py::arg("threads"));
}
