// A pool of threads that share numbered pieces of work. The caller works too, and waits only for threads
// that have begun: on a busy machine a thread that never woke up costs nothing.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#define TR_PAUSE() __builtin_ia32_pause()
#else
#define TR_PAUSE() std::this_thread::yield()
#endif

class Workers {
 public:
  using Piece = void (*)(void *context, int piece);

  static Workers &instance() {
    static Workers *workers = new Workers();  // never destroyed: its threads end with the process
    return *workers;
  }

  // Calls `piece(context, i)` once for every i below `count`, on up to `threads` threads.
  void run(int count, int threads, Piece piece, void *context) {
    if (threads <= 1 || count <= 1) {
      for (int i = 0; i < count; ++i) piece(context, i);
      return;
    }
    const std::lock_guard<std::mutex> one_job(job_mutex_);
    grow(threads - 1);
    next_.store(0, std::memory_order_relaxed);
    piece_ = piece;
    context_ = context;
    count_ = count;
    helpers_ = threads - 1;
    open();
    work();
    close();
  }

 private:
  static constexpr int kSpins = 4000;  // some 50 us: the gap between two products of one step

  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    epoch_.fetch_add(1, std::memory_order_release);
    if (sleeping_ > 0) wake_.notify_all();
  }

  // Nobody may join any more; those who did are waited for.
  void close() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_open_ = false;
    }
    while (active_.load(std::memory_order_acquire) > 0) TR_PAUSE();
  }

  void work() {
    for (int i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) piece_(context_, i);
  }

  bool join(int index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_open_ || index >= helpers_) return false;
    active_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  void serve(int index, std::uint64_t seen) {
    for (;;) {
      seen = next_epoch(seen);
      if (!join(index)) continue;
      work();
      active_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::uint64_t next_epoch(std::uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const std::uint64_t now = epoch_.load(std::memory_order_acquire);
      if (now != seen) return now;
      TR_PAUSE();
    }
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleeping_;
    wake_.wait(lock, [&] { return epoch_.load(std::memory_order_relaxed) != seen; });
    --sleeping_;
    return epoch_.load(std::memory_order_relaxed);
  }

  void grow(int helpers) {
    while (static_cast<int>(started_) < helpers) {
      const int index = started_++;
      std::thread(&Workers::serve, this, index, epoch_.load()).detach();
    }
  }

  std::mutex job_mutex_, mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<int> next_{0}, active_{0};
  bool is_open_ = false;
  int sleeping_ = 0, count_ = 0, helpers_ = 0, started_ = 0;
  Piece piece_ = nullptr;
  void *context_ = nullptr;
};

// The same for anything that can be called with a number.
template <typename Body>
void in_pieces(int count, int threads, Body &&body) {
  Workers::instance().run(
      count, threads, [](void *context, int piece) { (*static_cast<Body *>(context))(piece); }, &body);
}

// body(row) for every row; shared where `numbers` of them together are worth it.
template <typename Body>
void over_rows(int rows, double numbers, int threads, Body &&body) {
  constexpr int kPiece = 4;
  constexpr double kWorthSharing = 1 << 14;
  in_pieces((rows + kPiece - 1) / kPiece, numbers < kWorthSharing ? 1 : threads, [&](int piece) {
    for (int row = piece * kPiece; row < (piece + 1) * kPiece && row < rows; ++row) body(row);
  });
}
