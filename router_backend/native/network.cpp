#include "network.h"

#include <algorithm>
#include <stdexcept>

#include "workers.h"

namespace native {
namespace {

void expect_within(const std::int64_t *numbers, int count, std::int64_t limit, const char *what) {
  for (int i = 0; i < count; ++i)
    if (numbers[i] < 0 || numbers[i] >= limit) throw std::invalid_argument(what);
}

void store(void *pool, Cache cache, std::size_t at, const float *numbers, int count) {
  if (cache == Cache::half)
    kernels().halved(numbers, static_cast<Half *>(pool) + at, count);
  else
    std::copy_n(numbers, count, static_cast<float *>(pool) + at);
}

}  // namespace

void Forward::run(const Step &step, const Pool &pool, int threads, const Elsewhere &elsewhere) {
  check(step, pool);
  make_room(step.count);
  const std::size_t width = decoder_.hidden;
  for (int t = 0; t < step.count; ++t) std::copy_n(decoder_.embed + step.tokens[t] * width, width, &hidden_[t * width]);
  for (int layer = 0; layer < static_cast<int>(decoder_.layers.size()); ++layer) {
    const Layer &own = decoder_.layers[layer];
    norm_rows(own.input_norm, step.count, threads);
    multiply(own.qkv, normal_.data(), heads_.data(), step.count, false, threads, room_);
    attention(layer, step, pool, threads, elsewhere);
    multiply(own.out, attended_.data(), hidden_.data(), step.count, true, threads, room_);
    norm_rows(own.post_norm, step.count, threads);
    feed_forward(own, step.count, threads);
  }
  finish(step, threads);
}

void Forward::check(const Step &step, const Pool &pool) const {
  expect_within(step.tokens, step.count, decoder_.vocabulary, "token out of range");
  expect_within(step.positions, step.count, decoder_.length_max, "position out of range");
  expect_within(step.slots, step.count, static_cast<std::int64_t>(pool.num_blocks) * pool.block_size, "slot out of range");
  expect_within(step.sampled, step.num_sampled, step.count, "sampled token out of range");
  if (step.in_place.tokens > step.count) throw std::invalid_argument("more tokens in place than there are");
  Attention shape{};
  shape.block_size = pool.block_size;
  shape.num_blocks = pool.num_blocks;
  step.in_place.check(shape);
}

void Forward::make_room(int tokens) {
  const std::size_t count = tokens, dim = decoder_.head_dim;
  hidden_.resize(count * decoder_.hidden);
  normal_.resize(count * decoder_.hidden);
  heads_.resize(count * (decoder_.heads + 2 * decoder_.kv_heads) * dim);
  queries_.resize(count * decoder_.heads * dim);
  attended_.resize(count * decoder_.heads * dim);
  wide_.resize(count * 2 * decoder_.feed);
  gated_.resize(count * decoder_.feed);
}

void Forward::attention(int layer, const Step &step, const Pool &pool, int threads, const Elsewhere &elsewhere) {
  const std::size_t size = pool.cache == Cache::half ? sizeof(Half) : sizeof(float);
  const std::size_t half = static_cast<std::size_t>(pool.num_blocks) * pool.block_size * decoder_.kv_heads * decoder_.head_dim;
  char *keys = static_cast<char *>(pool.numbers) + 2 * layer * half * size, *values = keys + half * size;
  over_rows(step.count, static_cast<double>(heads_.size()), threads,
            [&](int token) { place(decoder_.layers[layer], step, pool, keys, values, token); });
  if (step.in_place.tokens) {
    const Attention shape{queries_.data(), keys, values, attended_.data(), decoder_.heads, decoder_.kv_heads,
                          decoder_.head_dim, pool.block_size, pool.num_blocks};
    attend(shape, step.in_place, pool.cache, threads);
  }
  if (step.in_place.tokens < step.count) elsewhere(layer);
}

// Turns a token's queries and keys to their position, and stores keys and values.
void Forward::place(const Layer &layer, const Step &step, const Pool &pool, void *keys, void *values, int token) {
  const int dim = decoder_.head_dim, turning = decoder_.heads + decoder_.kv_heads, stored = decoder_.kv_heads * dim;
  float *heads = &heads_[static_cast<std::size_t>(token) * (turning + decoder_.kv_heads) * dim];
  const float *turn = decoder_.turns + step.positions[token] * 2 * dim;
  for (int h = 0; h < turning; ++h) {
    float *head = heads + h * dim;
    if (layer.qk_norm) kernels().normed(head, layer.qk_norm + h * dim, decoder_.epsilon, head, dim);
    kernels().rotated(head, turn, dim);
  }
  std::copy_n(heads, decoder_.heads * dim, &queries_[static_cast<std::size_t>(token) * decoder_.heads * dim]);
  const std::size_t slot = static_cast<std::size_t>(step.slots[token]) * stored;
  store(keys, pool.cache, slot, heads + decoder_.heads * dim, stored);
  store(values, pool.cache, slot, heads + turning * dim, stored);
}

void Forward::feed_forward(const Layer &layer, int tokens, int threads) {
  const std::size_t feed = decoder_.feed;
  multiply(layer.gate_up, normal_.data(), wide_.data(), tokens, false, threads, room_);
  over_rows(tokens, static_cast<double>(wide_.size()), threads, [&](int token) {
    const float *gate = &wide_[token * 2 * feed];
    kernels().gated(gate, gate + feed, &gated_[token * feed], decoder_.feed);
  });
  multiply(layer.down, gated_.data(), hidden_.data(), tokens, true, threads, room_);
}

void Forward::norm_rows(const float *weight, int tokens, int threads) {
  const std::size_t width = decoder_.hidden;
  over_rows(tokens, static_cast<double>(hidden_.size()), threads, [&](int token) {
    kernels().normed(&hidden_[token * width], weight, decoder_.epsilon, &normal_[token * width], decoder_.hidden);
  });
}

void Forward::finish(const Step &step, int threads) {
  const std::size_t width = decoder_.hidden;
  for (int r = 0; r < step.num_sampled; ++r)
    kernels().normed(&hidden_[step.sampled[r] * width], decoder_.norm, decoder_.epsilon, step.hidden + r * width,
                     decoder_.hidden);
  if (step.logits && step.num_sampled)
    multiply(decoder_.head, step.hidden, step.logits, step.num_sampled, false, threads, room_);
}

}  // namespace native
