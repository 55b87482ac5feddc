// A whole step of a decoder, layer by layer, in one call: between its small products the interpreter and a
// tensor library would take longer than the products. `network_plain.py` is the twin that defines correct.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "products.h"

namespace native {

struct Layer {
  const float *input_norm, *post_norm;  // [E]
  const float *qk_norm;                 // [H + K, D] or none
  Matrix qkv, out, gate_up, down;
};

struct Decoder {
  int hidden, heads, kv_heads, head_dim, feed;
  float epsilon;
  const float *embed;  // [V, E]
  const float *turns;  // [positions, 2, D]: see `rotated`
  const float *norm;   // [E]
  std::int64_t vocabulary, length_max;
  std::vector<Layer> layers;
  Matrix head;
};

// The pool is [layers, 2, num_blocks, block_size, K, D], keys before values.
struct Pool {
  void *numbers;
  Cache cache;
  int num_blocks, block_size;
};

// T packed tokens of which the first `in_place.tokens` are attended in place and the others by `elsewhere`.
struct Step {
  const std::int64_t *tokens, *positions, *slots;
  int count;
  Where in_place;
  const std::int64_t *sampled;
  int num_sampled;
  float *hidden, *logits;  // [R, E] and [R, outputs of the head]
};

class Forward {
 public:
  // Writes queries [T, H, D], given the layer; attended [T, H * D] is read when it returns.
  using Elsewhere = std::function<void(int layer)>;

  explicit Forward(Decoder decoder) : decoder_(std::move(decoder)) {}

  const Decoder &decoder() const { return decoder_; }
  const std::vector<float> &queries() const { return queries_; }
  std::vector<float> &attended() { return attended_; }

  // Throws std::invalid_argument for an index out of range, before anything is written.
  void run(const Step &step, const Pool &pool, int threads, const Elsewhere &elsewhere);

 private:
  void check(const Step &step, const Pool &pool) const;
  void make_room(int tokens);
  void attention(int layer, const Step &step, const Pool &pool, int threads, const Elsewhere &elsewhere);
  void place(const Layer &layer, const Step &step, const Pool &pool, void *keys, void *values, int token);
  void feed_forward(const Layer &layer, int tokens, int threads);
  void norm_rows(const float *weight, int tokens, int threads);
  void finish(const Step &step, int threads);

  Decoder decoder_;
  Room room_;
  std::vector<float> hidden_, normal_, heads_, queries_, attended_, wide_, gated_;
};

}  // namespace native
