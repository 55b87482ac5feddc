// The stationary distribution, compiled. `stationary_plain.py` is the twin that defines correct and says
// why it converges. The interpreter lock is released while solving.

#include <algorithm>
#include <cmath>

#include "arrays.h"

namespace {

constexpr int kSweepLimit = 5000;
constexpr double kResidualMax = 1e-10;
constexpr int kMemory = 5;
constexpr double kRidge = 1e-10;
constexpr double kTiny = 1e-300;

using Vector = std::vector<double>;

std::vector<std::int32_t> reverse_postorder(const std::vector<std::int64_t> &starts, const std::vector<std::int32_t> &targets) {
  const std::size_t count = starts.size() - 1;
  std::vector<char> seen(count, 0);
  std::vector<std::int32_t> finished;
  std::vector<std::pair<std::int32_t, std::int64_t>> stack;
  for (std::size_t root = 0; root < count; ++root) {
    if (seen[root]) continue;
    seen[root] = 1;
    stack.emplace_back(static_cast<std::int32_t>(root), starts[root]);
    while (!stack.empty()) {
      auto &[state, edge] = stack.back();
      if (edge == starts[state + 1]) {
        finished.push_back(state);
        stack.pop_back();
        continue;
      }
      const std::int32_t target = targets[edge++];
      if (seen[target]) continue;
      seen[target] = 1;
      stack.emplace_back(target, starts[target]);
    }
  }
  std::reverse(finished.begin(), finished.end());
  return finished;
}

// Incoming edges by position in the sweep order.
struct Incoming {
  std::vector<std::int64_t> start;
  std::vector<std::int32_t> source;
  std::vector<double> probability;
  std::vector<double> stay;
};

Incoming transpose(const std::vector<std::int32_t> &order, const std::vector<std::int64_t> &starts,
                   const std::vector<std::int32_t> &targets, const std::vector<double> &probability) {
  const std::size_t count = order.size();
  std::vector<std::int32_t> position(count);
  for (std::size_t place = 0; place < count; ++place) position[order[place]] = static_cast<std::int32_t>(place);
  Incoming incoming{std::vector<std::int64_t>(count + 1, 0), std::vector<std::int32_t>(targets.size()),
                    std::vector<double>(targets.size()), std::vector<double>(count, 0.0)};
  for (const std::int32_t target : targets) ++incoming.start[position[target] + 1];
  for (std::size_t place = 0; place < count; ++place) incoming.start[place + 1] += incoming.start[place];
  std::vector<std::int64_t> next(incoming.start.begin(), incoming.start.end() - 1);
  for (std::size_t place = 0; place < count; ++place) {
    for (std::int64_t edge = starts[order[place]]; edge < starts[order[place] + 1]; ++edge) {
      const std::int32_t target = position[targets[edge]];
      const bool stays = target == static_cast<std::int32_t>(place);
      if (stays) incoming.stay[place] += probability[edge];
      incoming.source[next[target]] = static_cast<std::int32_t>(place);
      incoming.probability[next[target]++] = stays ? 0.0 : probability[edge];
    }
  }
  return incoming;
}

// The sum of `term(place)`. In four parts: one would wait at every place for the addition before it.
template <typename Term>
double sum(std::size_t count, Term term) {
  double parts[4] = {0.0, 0.0, 0.0, 0.0};
  std::size_t place = 0;
  for (; place + 4 <= count; place += 4)
    for (std::size_t part = 0; part < 4; ++part) parts[part] += term(place + part);
  for (; place < count; ++place) parts[0] += term(place);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

void normalise(Vector &values) {
  const double share = 1.0 / sum(values.size(), [&](std::size_t place) { return values[place]; });
  for (double &value : values) value *= share;
}

double dot(const Vector &left, const Vector &right) {
  return sum(left.size(), [&](std::size_t place) { return left[place] * right[place]; });
}

// One Gauss-Seidel sweep in place, rescaled to sum 1.
void sweep(Vector &mass, const Incoming &incoming) {
  for (std::size_t place = 0; place < mass.size(); ++place) {
    double inflow = 0.0;
    for (std::int64_t edge = incoming.start[place]; edge < incoming.start[place + 1]; ++edge)
      inflow += mass[incoming.source[edge]] * incoming.probability[edge];
    const double leave = 1.0 - incoming.stay[place];
    mass[place] = leave > 0.0 ? inflow / leave : mass[place] + inflow;
  }
  normalise(mass);
}

// Solves a small dense system in place, with partial pivoting.
Vector solve(std::vector<Vector> matrix, Vector right) {
  const std::size_t size = right.size();
  for (std::size_t column = 0; column < size; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < size; ++row)
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) pivot = row;
    std::swap(matrix[column], matrix[pivot]);
    std::swap(right[column], right[pivot]);
    for (std::size_t row = column + 1; row < size; ++row) {
      const double factor = matrix[row][column] / matrix[column][column];
      for (std::size_t k = column; k < size; ++k) matrix[row][k] -= factor * matrix[column][k];
      right[row] -= factor * right[column];
    }
  }
  for (std::size_t row = size; row-- > 0;) {
    for (std::size_t k = row + 1; k < size; ++k) right[row] -= matrix[row][k] * right[k];
    right[row] /= matrix[row][row];
  }
  return right;
}

// Anderson's extrapolation: the mix of the last sweeps that would have changed least.
class Memory {
 public:
  // Where to sweep from next; `mass` is the last sweep's start and becomes the answer.
  void extrapolate(Vector &mass, const Vector &swept) {
    Vector change(mass.size());
    for (std::size_t place = 0; place < mass.size(); ++place) change[place] = swept[place] - mass[place];
    if (!last_swept_.empty()) {
      remember(swept_steps_, swept, last_swept_);
      remember(change_steps_, change, last_change_);
      remember_products();
    }
    const Vector weights = this->weights(change);
    mass = swept;
    for (std::size_t k = 0; k < weights.size(); ++k)
      for (std::size_t place = 0; place < mass.size(); ++place) mass[place] -= weights[k] * swept_steps_[k][place];
    for (double &value : mass) value = std::max(value, 0.0);  // extrapolation may leave the simplex
    normalise(mass);
    last_swept_ = swept;
    last_change_ = std::move(change);
  }

 private:
  static void remember(std::vector<Vector> &steps, const Vector &now, const Vector &before) {
    Vector step(now.size());
    for (std::size_t place = 0; place < now.size(); ++place) step[place] = now[place] - before[place];
    if (steps.size() == static_cast<std::size_t>(kMemory)) steps.erase(steps.begin());
    steps.push_back(std::move(step));
  }

  // The products of the newest step with all others; those of the others are known.
  void remember_products() {
    if (gram_.size() == static_cast<std::size_t>(kMemory)) {
      gram_.erase(gram_.begin());
      for (Vector &row : gram_) row.erase(row.begin());
    }
    Vector newest;
    for (const Vector &step : change_steps_) newest.push_back(dot(step, change_steps_.back()));
    for (std::size_t row = 0; row < gram_.size(); ++row) gram_[row].push_back(newest[row]);
    gram_.push_back(std::move(newest));
  }

  // Least squares: change = sum of weight * change_step.
  Vector weights(const Vector &change) const {
    std::vector<Vector> gram = gram_;
    Vector right;
    for (std::size_t row = 0; row < gram.size(); ++row) {
      gram[row][row] = gram[row][row] * (1.0 + kRidge) + kTiny;
      right.push_back(dot(change_steps_[row], change));
    }
    return solve(std::move(gram), std::move(right));
  }

  Vector last_swept_, last_change_;
  std::vector<Vector> swept_steps_, change_steps_, gram_;
};

// The distribution by position in the sweep order; empty when the sweeps do not converge.
Vector iterate(const Incoming &incoming) {
  const std::size_t count = incoming.stay.size();
  Vector mass(count, 1.0 / static_cast<double>(count));
  Memory memory;
  for (int round = 0; round < kSweepLimit; ++round) {
    Vector swept = mass;
    sweep(swept, incoming);
    const double change = sum(count, [&](std::size_t place) { return std::abs(swept[place] - mass[place]); });
    if (change <= kResidualMax) return swept;
    memory.extrapolate(mass, swept);
  }
  return {};
}

}  // namespace

py::array_t<double> stationary_distribution(const py::object &row_start, const py::object &successor,
                                            const py::object &probability) {
  const auto starts = to_vector<std::int64_t>(row_start);
  const auto targets = to_vector<std::int32_t>(successor);
  const auto chances = to_vector<double>(probability);
  if (starts.size() < 2 || targets.size() != chances.size() || starts.back() != static_cast<std::int64_t>(targets.size()))
    throw py::value_error("the arrays of the chain disagree about the number of states or edges");
  Vector result;
  {
    py::gil_scoped_release unlocked;
    const auto order = reverse_postorder(starts, targets);
    const Vector mass = iterate(transpose(order, starts, targets, chances));
    result.resize(mass.size());
    for (std::size_t place = 0; place < mass.size(); ++place) result[order[place]] = mass[place];
  }
  if (result.empty()) {
    PyErr_SetString(PyExc_ArithmeticError, "no stationary distribution: the sweeps did not converge");
    throw py::error_already_set();
  }
  const auto count = static_cast<py::ssize_t>(result.size());
  return to_array(std::move(result), {count});
}
