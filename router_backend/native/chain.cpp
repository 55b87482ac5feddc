// Enumeration of the chain, compiled. `chain_plain.py` is the twin that defines correct: same names, same
// order of states and edges. The interpreter lock is released meanwhile, so that a planner thread never
// delays the decode loop.

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "arrays.h"

namespace {

struct Spec {
  int models = 0;
  int concurrency = 0;
  std::vector<std::int32_t> floor_ticks;   // [M, N]
  std::vector<double> ceil_probability;    // [M, N]
  std::vector<double> routing;             // [M, M]
  std::vector<std::int32_t> thresholds, caps;
  std::int32_t stride_ticks = 0;
  std::int64_t state_limit = 0;
};

Spec read_spec(const py::object &object) {
  Spec spec;
  spec.thresholds = to_vector<std::int32_t>(object.attr("thresholds"));
  spec.caps = to_vector<std::int32_t>(object.attr("caps"));
  spec.models = static_cast<int>(spec.thresholds.size());
  spec.floor_ticks = to_vector<std::int32_t>(object.attr("floor_ticks"));
  spec.ceil_probability = to_vector<double>(object.attr("ceil_probability"));
  spec.routing = to_vector<double>(object.attr("routing"));
  spec.stride_ticks = object.attr("stride_ticks").cast<std::int32_t>();
  spec.state_limit = object.attr("state_limit").cast<std::int64_t>();
  spec.concurrency = static_cast<int>(spec.floor_ticks.size()) / std::max(spec.models, 1);
  const std::size_t cells = static_cast<std::size_t>(spec.models) * spec.concurrency;
  const std::size_t square = static_cast<std::size_t>(spec.models) * spec.models;
  if (cells == 0 || spec.floor_ticks.size() != cells || spec.ceil_probability.size() != cells ||
      spec.routing.size() != square || spec.caps.size() != spec.thresholds.size())
    throw py::value_error("the arrays of the chain disagree about the number of models or requests");
  return spec;
}

// A state, packed in mixed radix. 128 bits hold more states than any memory does.
using Key = unsigned __int128;

// Open addressing: the search asks for millions of short keys and never removes one.
class StateIndex {
 public:
  StateIndex() : keys_(1024), ids_(1024, -1) {}

  // The id of the key, or -1 after noting that `next_id` now belongs to it.
  std::int32_t find_or_add(Key key, std::int32_t next_id) {
    if (2 * (count_ + 1) > ids_.size()) grow();
    const std::size_t slot = slot_of(key);
    if (ids_[slot] >= 0) return ids_[slot];
    keys_[slot] = key;
    ids_[slot] = next_id;
    ++count_;
    return -1;
  }

 private:
  std::size_t slot_of(Key key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key) ^ (static_cast<std::uint64_t>(key >> 64) * 0x9E3779B97F4A7C15ull);
    hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 29;
    std::size_t slot = hash & (ids_.size() - 1);
    while (ids_[slot] >= 0 && keys_[slot] != key) slot = (slot + 1) & (ids_.size() - 1);
    return slot;
  }

  void grow() {
    std::vector<Key> keys(2 * keys_.size());
    std::vector<std::int32_t> ids(2 * ids_.size(), -1);
    keys.swap(keys_);
    ids.swap(ids_);
    for (std::size_t old = 0; old < ids.size(); ++old) {
      if (ids[old] < 0) continue;
      const std::size_t slot = slot_of(keys[old]);
      keys_[slot] = keys[old];
      ids_[slot] = ids[old];
    }
  }

  std::vector<Key> keys_;
  std::vector<std::int32_t> ids_;
  std::size_t count_ = 0;
};

// All ways to send `count` requests along one row of P.
struct Splits {
  std::vector<std::int32_t> counts;  // [ways, M]
  std::vector<double> probability;   // [ways]
};

double binomial(int n, int k) {
  double result = 1.0;
  for (int i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return std::round(result);
}

void multinomial(const double *row, int models, int count, double weight, std::vector<std::int32_t> &head, Splits &out) {
  const int place = static_cast<int>(head.size());
  if (place == models - 1) {
    if (count > 0 && row[place] <= 0.0) return;
    out.counts.insert(out.counts.end(), head.begin(), head.end());
    out.counts.push_back(count);
    out.probability.push_back(weight * std::pow(row[place], count));
    return;
  }
  for (int here = 0; here <= count; ++here) {
    const double factor = binomial(count, here) * std::pow(row[place], here);
    if (factor <= 0.0) continue;
    head.push_back(here);
    multinomial(row, models, count - here, weight * factor, head, out);
    head.pop_back();
  }
}

// Breadth-first search over the reachable states of one chain.
class Enumeration {
 public:
  explicit Enumeration(const Spec &spec)
      : spec_(spec), models_(spec.models), width_(3 * spec.models), splits_(spec.models * (spec.concurrency + 1)) {
    const std::int32_t longest = *std::max_element(spec.floor_ticks.begin(), spec.floor_ticks.end());
    residual_radix_ = static_cast<std::uint64_t>(longest) + 2;
    count_radix_ = static_cast<std::uint64_t>(spec.concurrency) + 1;
    if (width_ / 3 * (2 * std::log2(count_radix_) + std::log2(residual_radix_)) >= 127)
      throw std::overflow_error("the states of the chain do not fit a 128-bit key");
  }

  void run() {
    start();
    row_start.push_back(0);
    for (std::size_t position = 0; position * width_ < states.size(); ++position) {
      expand(position);
      row_start.push_back(static_cast<std::int64_t>(successor.size()));
    }
  }

  std::vector<std::int32_t> states;
  std::vector<std::int64_t> row_start;
  std::vector<std::int32_t> successor;
  std::vector<double> probability;

 private:
  std::int32_t &waiting(int model) { return current_[3 * model]; }
  std::int32_t &running(int model) { return current_[3 * model + 1]; }
  std::int32_t &residual(int model) { return current_[3 * model + 2]; }

  void start() {
    current_.assign(width_, 0);
    waiting(0) = spec_.concurrency;
    launch(0, 1.0);
    successor.clear();
    probability.clear();
    std::fill(edge_of_.begin(), edge_of_.end(), 0);
  }

  void expand(std::size_t position) {
    const auto begin = states.begin() + static_cast<std::ptrdiff_t>(position * width_);
    current_.assign(begin, begin + width_);
    elapsed_ = spec_.stride_ticks;
    for (int model = 0; model < models_; ++model)
      if (running(model) > 0) elapsed_ = std::min(elapsed_, residual(model));
    row_begin_ = successor.size();
    complete(0, 1.0);
  }

  // Applies the completions of the models from `model` on, then goes on to the launches.
  void complete(int model, double chance) {
    if (model == models_) return launch(0, chance);
    const std::int32_t batch = running(model), ticks = residual(model);
    if (batch > 0 && ticks > elapsed_) {
      residual(model) = ticks - elapsed_;
      complete(model + 1, chance);
      residual(model) = ticks;
      return;
    }
    running(model) = residual(model) = 0;
    const Splits &ways = splits(model, batch);
    for (std::size_t way = 0; way < ways.probability.size(); ++way) {
      move(&ways.counts[way * models_], 1);
      complete(model + 1, chance * ways.probability[way]);
      move(&ways.counts[way * models_], -1);
    }
    running(model) = batch;
    residual(model) = ticks;
  }

  void move(const std::int32_t *counts, int sign) {
    for (int model = 0; model < models_; ++model) waiting(model) += sign * counts[model];
  }

  const Splits &splits(int model, int batch) {
    Splits &ways = splits_[model * (spec_.concurrency + 1) + batch];
    if (ways.probability.empty()) {
      std::vector<std::int32_t> head;
      multinomial(&spec_.routing[model * models_], models_, batch, 1.0, head, ways);
    }
    return ways;
  }

  void launch(int model, double chance) {
    if (model == models_) return add_edge(identify(), chance);
    const std::int32_t queue = waiting(model);
    if (running(model) > 0 || queue < spec_.thresholds[model]) return launch(model + 1, chance);
    const std::int32_t batch = std::min(queue, spec_.caps[model]);
    const std::size_t cell = static_cast<std::size_t>(model) * spec_.concurrency + batch - 1;
    const double longer = spec_.ceil_probability[cell];
    waiting(model) = queue - batch;
    running(model) = batch;
    for (int extra = 0; extra < 2; ++extra) {
      const double share = extra ? longer : 1.0 - longer;
      if (share <= 0.0) continue;
      residual(model) = spec_.floor_ticks[cell] + extra;
      launch(model + 1, chance * share);
    }
    waiting(model) = queue;
    running(model) = residual(model) = 0;
  }

  std::int32_t identify() {
    Key key = 0;
    for (int model = 0; model < models_; ++model) {
      key = key * count_radix_ + static_cast<std::uint64_t>(waiting(model));
      key = key * count_radix_ + static_cast<std::uint64_t>(running(model));
      key = key * residual_radix_ + static_cast<std::uint64_t>(residual(model));
    }
    const auto next = static_cast<std::int32_t>(states.size() / width_);
    const std::int32_t found = index_.find_or_add(key, next);
    if (found >= 0) return found;
    if (next >= spec_.state_limit)
      throw std::overflow_error("the chain has more than " + std::to_string(spec_.state_limit) + " states");
    states.insert(states.end(), current_.begin(), current_.end());
    edge_of_.push_back(0);
    return next;
  }

  // `edge_of_[state]` is one past the last edge into it: an edge of this row means "seen in this row".
  void add_edge(std::int32_t state, double chance) {
    const std::size_t last = edge_of_[state];
    if (last > row_begin_) {
      probability[last - 1] += chance;
      return;
    }
    successor.push_back(state);
    probability.push_back(chance);
    edge_of_[state] = successor.size();
  }

  const Spec &spec_;
  const int models_, width_;
  std::uint64_t count_radix_ = 0, residual_radix_ = 0;
  std::vector<Splits> splits_;
  StateIndex index_;
  std::vector<std::int32_t> current_;
  std::vector<std::size_t> edge_of_;
  std::size_t row_begin_ = 0;
  std::int32_t elapsed_ = 0;
};

py::tuple enumerate_chain(const py::object &object) {
  const Spec spec = read_spec(object);
  Enumeration search(spec);
  {
    py::gil_scoped_release unlocked;
    search.run();
  }
  const auto count = static_cast<py::ssize_t>(search.row_start.size()) - 1;
  const auto edges = static_cast<py::ssize_t>(search.successor.size());
  return py::make_tuple(to_array(std::move(search.states), {count, spec.models, 3}),
                        to_array(std::move(search.row_start), {count + 1}),
                        to_array(std::move(search.successor), {edges}),
                        to_array(std::move(search.probability), {edges}));
}

}  // namespace

PYBIND11_MODULE(_chain, module) {
  module.doc() = "Compiled twins of router_backend.native.chain_plain and stationary_plain.";
  module.def("enumerate_chain", &enumerate_chain, py::arg("spec"));
  module.def("stationary_distribution", &stationary_distribution, py::arg("row_start"), py::arg("successor"),
             py::arg("probability"));
}
