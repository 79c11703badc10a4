// Bodies of LinearAttention and its gradient. Columns of a state do not know of each other: a
// thread has the column of one element of the values. The sums over values are those of warps.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_BODY_H_

#include <cmath>
#include <cstdint>

#include "ops/kernels/cuda/attention/linear_attention_launch.h"
#include "ops/kernels/cuda/blocks/block_reduce.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// A sum: short runs in C, those of runs in float64.
template <typename C>
class RunSum {
 public:
  WEFT_GPU void Add(C value) {
    run_ += value;
    if (++terms_ < kRun) return;
    total_ += static_cast<double>(run_);
    run_ = 0;
    terms_ = 0;
  }
  WEFT_GPU double Total() const { return total_ + static_cast<double>(run_); }

 private:
  static constexpr int kRun = 16;
  double total_ = 0;
  C run_ = 0;
  int terms_ = 0;
};

// The operands as numbers of C. A `head` counts batch * kv_heads ones; a `row` is one of its steps.
template <typename T, typename C>
struct LinearAttentionReader {
  const LinearAttentionOperands& of;

  template <class Gpu>
  WEFT_GPU static C Read(Gpu& gpu, const void* data, int64_t i) {
    const T value = gpu.Global(static_cast<const T*>(data))[i];
    return static_cast<C>(Widen(value));
  }
  WEFT_GPU int64_t State() const { return of.key_size * of.value_size; }
  WEFT_GPU int64_t Group() const { return of.q_heads / of.kv_heads; }
  WEFT_GPU int64_t Row(int64_t head, int64_t t) const {
    const int64_t b = head / of.kv_heads;
    return (b * of.steps + t) * of.kv_heads + (head - b * of.kv_heads);
  }
  // Of the `q`-th query that shares a row's head. Heads of queries lie next to each other, so that
  // a row has its own behind those of the rows before it.
  WEFT_GPU int64_t QueryRow(int64_t row, int64_t q) const { return row * Group() + q; }

  template <class Gpu>
  WEFT_GPU C Query(Gpu& gpu, int64_t query_row, int64_t d) const {
    return Read(gpu, of.query, query_row * of.key_size + d);
  }
  template <class Gpu>
  WEFT_GPU C Key(Gpu& gpu, int64_t row, int64_t d) const {
    return Read(gpu, of.key, row * of.key_size + d);
  }
  template <class Gpu>
  WEFT_GPU C Value(Gpu& gpu, int64_t row, int64_t m) const {
    return Read(gpu, of.value, row * of.value_size + m);
  }
  // What a state's row d is multiplied by.
  template <class Gpu>
  WEFT_GPU C Factor(Gpu& gpu, int64_t row, int64_t d) const {
    if (of.decays == 0) return C{1};
    return std::exp(Read(gpu, of.decay, row * of.decays + (of.decays == 1 ? 0 : d)));
  }
  template <class Gpu>
  WEFT_GPU C Beta(Gpu& gpu, int64_t row) const {
    if (of.betas == 0) return C{1};
    return Read(gpu, of.beta, of.betas == 1 ? row / of.kv_heads : row);
  }
};

// LinearAttentionForward.
template <typename T, typename C>
struct LinearAttentionBody {
  LinearAttentionForward call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const LinearAttentionOperands& of = call.of;
    const int64_t columns = of.batch * of.kv_heads * of.value_size;
    for (int64_t i = gpu.index(); i < columns; i += gpu.stride()) {
      const int64_t head = i / of.value_size;
      Column(gpu, head, i - head * of.value_size);
    }
  }

 private:
  using Reader = LinearAttentionReader<T, C>;

  template <class Gpu>
  WEFT_GPU void Column(Gpu& gpu, int64_t head, int64_t m) const {
    const LinearAttentionOperands& of = call.of;
    const Reader reader{of};
    const int64_t first = head * reader.State() + m;
    const auto state = gpu.Global(static_cast<C*>(call.state)) + first;
    for (int64_t d = 0; d < of.key_size; ++d) {
      C value = 0;
      if (of.past_state.data != nullptr) {
        value = static_cast<C>(ReadReal(gpu, of.past_state, first + d * of.value_size));
      }
      state[d * of.value_size] = value;
    }
    if (call.chunk > 0 && of.steps == 0) Keep(gpu, 0, first);
    for (int64_t t = 0; t < of.steps; ++t) {
      if (call.chunk > 0 && t % call.chunk == 0) Keep(gpu, t / call.chunk, first);
      Step(gpu, first, reader.Row(head, t), m);
    }
    if (call.present_state.data == nullptr) return;
    for (int64_t d = 0; d < of.key_size; ++d) {
      const C value = state[d * of.value_size];
      WriteReal(gpu, call.present_state, first + d * of.value_size, static_cast<double>(value));
    }
  }

  // The column that begins at `first` is what chunk `number` begins with.
  template <class Gpu>
  WEFT_GPU void Keep(Gpu& gpu, int64_t number, int64_t first) const {
    const LinearAttentionOperands& of = call.of;
    const int64_t all = of.batch * of.kv_heads * of.key_size * of.value_size;
    const auto state = gpu.Global(static_cast<C*>(call.state)) + first;
    const auto kept = gpu.Global(static_cast<C*>(call.starts)) + (number * all + first);
    for (int64_t d = 0; d < of.key_size; ++d) {
      const C value = state[d * of.value_size];
      kept[d * of.value_size] = value;
    }
  }

  template <class Gpu>
  WEFT_GPU void Step(Gpu& gpu, int64_t first, int64_t row, int64_t m) const {
    const LinearAttentionOperands& of = call.of;
    const Reader reader{of};
    const auto state = gpu.Global(static_cast<C*>(call.state)) + first;
    C w = reader.Value(gpu, row, m);
    if (of.decays != 0 || of.betas != 0) {
      RunSum<C> known;
      for (int64_t d = 0; d < of.key_size; ++d) {
        C value = state[d * of.value_size];
        if (of.decays != 0) {
          value *= reader.Factor(gpu, row, d);
          state[d * of.value_size] = value;
        }
        if (of.betas != 0) known.Add(reader.Key(gpu, row, d) * value);
      }
      if (of.betas != 0) w = reader.Beta(gpu, row) * (w - static_cast<C>(known.Total()));
    }
    for (int64_t d = 0; d < of.key_size; ++d) {
      const C value = state[d * of.value_size];
      state[d * of.value_size] = value + reader.Key(gpu, row, d) * w;
    }
    if (call.y == nullptr) return;
    const auto y = gpu.Global(static_cast<T*>(call.y));
    for (int64_t q = 0; q < reader.Group(); ++q) {
      const int64_t query = reader.QueryRow(row, q);
      RunSum<C> sum;
      for (int64_t d = 0; d < of.key_size; ++d) {
        const C value = state[d * of.value_size];
        sum.Add(reader.Query(gpu, query, d) * value);
      }
      y[query * of.value_size + m] =
          Narrow<T>(static_cast<Compute<T>>(static_cast<C>(of.scale * sum.Total())));
    }
  }
};

// The columns of a LinearAttentionChunk: its states again, then their gradients.
template <typename T, typename C>
struct LinearAttentionChunkBody {
  LinearAttentionChunk call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const LinearAttentionOperands& of = call.of;
    const int64_t columns = of.batch * of.kv_heads * of.value_size;
    for (int64_t i = gpu.index(); i < columns; i += gpu.stride()) {
      const int64_t head = i / of.value_size;
      Column(gpu, head, i - head * of.value_size);
    }
  }

 private:
  using Reader = LinearAttentionReader<T, C>;

  template <class Gpu>
  WEFT_GPU void Column(Gpu& gpu, int64_t head, int64_t m) const {
    const LinearAttentionOperands& of = call.of;
    const Reader reader{of};
    C w = 0;
    for (int64_t t = call.begin; t < call.end; ++t) w = Forward(gpu, head, t, m, w);
    const int64_t first = head * reader.State() + m;
    const auto dstate = gpu.Global(static_cast<C*>(call.dstate)) + first;
    for (int64_t d = 0; call.is_last && d < of.key_size; ++d) {
      C value = 0;
      if (call.dpresent_state.data != nullptr) {
        value = static_cast<C>(ReadReal(gpu, call.dpresent_state, first + d * of.value_size));
      }
      dstate[d * of.value_size] = value;
    }
    for (int64_t t = call.end - 1; t >= call.begin; --t) Backward(gpu, head, t, m);
    if (call.begin != 0 || call.dpast_state.data == nullptr) return;
    for (int64_t d = 0; d < of.key_size; ++d) {
      const C value = dstate[d * of.value_size];
      WriteReal(gpu, call.dpast_state, first + d * of.value_size, static_cast<double>(value));
    }
  }

  // S of step t, from that of the step before and its `w`; returns the w of step t.
  template <class Gpu>
  WEFT_GPU C Forward(Gpu& gpu, int64_t head, int64_t t, int64_t m, C w) const {
    const LinearAttentionOperands& of = call.of;
    const Reader reader{of};
    const int64_t slot = head * call.chunk + (t - call.begin);
    const int64_t row = reader.Row(head, t);
    const auto start = gpu.Global(static_cast<const C*>(call.start));
    const auto states = gpu.Global(static_cast<C*>(call.states));
    RunSum<C> known;
    for (int64_t d = 0; d < of.key_size; ++d) {
      const int64_t element = d * of.value_size + m;
      C value;
      if (t == call.begin) {
        value = start[head * reader.State() + element];
      } else {
        value = states[(slot - 1) * reader.State() + element];
        value += reader.Key(gpu, row - of.kv_heads, d) * w;
      }
      value *= reader.Factor(gpu, row, d);
      states[slot * reader.State() + element] = value;
      if (of.betas != 0) known.Add(reader.Key(gpu, row, d) * value);
    }
    C u = reader.Value(gpu, row, m);
    if (of.betas != 0) u -= static_cast<C>(known.Total());
    gpu.Global(static_cast<C*>(call.u))[slot * of.value_size + m] = u;
    return reader.Beta(gpu, row) * u;
  }

  template <class Gpu>
  WEFT_GPU void Backward(Gpu& gpu, int64_t head, int64_t t, int64_t m) const {
    const LinearAttentionOperands& of = call.of;
    const Reader reader{of};
    const int64_t slot = head * call.chunk + (t - call.begin);
    const int64_t row = reader.Row(head, t);
    const auto dstate = gpu.Global(static_cast<C*>(call.dstate)) + (head * reader.State() + m);
    const auto dstates = gpu.Global(static_cast<C*>(call.dstates)) + (slot * reader.State() + m);
    const auto scale = static_cast<C>(of.scale);
    RunSum<C> dw_sum;
    for (int64_t d = 0; d < of.key_size; ++d) {
      C value = dstate[d * of.value_size];
      for (int64_t q = 0; call.dy != nullptr && q < reader.Group(); ++q) {
        const int64_t query = reader.QueryRow(row, q);
        value += scale * reader.Query(gpu, query, d) *
                 Reader::Read(gpu, call.dy, query * of.value_size + m);
      }
      dstates[d * of.value_size] = value;
      dw_sum.Add(reader.Key(gpu, row, d) * value);
    }
    const auto dw = static_cast<C>(dw_sum.Total());
    const C du = reader.Beta(gpu, row) * dw;
    gpu.Global(static_cast<C*>(call.dw))[slot * of.value_size + m] = dw;
    if (call.dvalue != nullptr) {
      gpu.Global(static_cast<T*>(call.dvalue))[row * of.value_size + m] =
          Narrow<T>(static_cast<Compute<T>>(du));
    }
    for (int64_t d = 0; d < of.key_size; ++d) {
      C value = dstates[d * of.value_size];
      if (of.betas != 0) value -= reader.Key(gpu, row, d) * du;
      dstate[d * of.value_size] = value * reader.Factor(gpu, row, d);
    }
  }
};

// Sums of warps over what LinearAttentionChunkBody left: a warp has an output, or one of each.
template <typename T, typename C>
struct LinearAttentionSums {
  LinearAttentionChunk call;

 protected:
  using Reader = LinearAttentionReader<T, C>;

  // One step of one head.
  struct Place {
    int64_t slot;
    int64_t row;
    C beta;
  };

  template <class Gpu>
  WEFT_GPU Place Find(Gpu& gpu, int64_t head, int64_t t) const {
    const Reader reader{call.of};
    const int64_t row = reader.Row(head, call.begin + t);
    return {head * call.chunk + t, row, reader.Beta(gpu, row)};
  }
  template <class Gpu>
  WEFT_GPU C OfState(Gpu& gpu, const void* states, const Place& at, int64_t d, int64_t m) const {
    const int64_t element = (at.slot * call.of.key_size + d) * call.of.value_size + m;
    return gpu.Global(static_cast<const C*>(states))[element];
  }
  template <class Gpu>
  WEFT_GPU C OfValue(Gpu& gpu, const void* values, const Place& at, int64_t m) const {
    return gpu.Global(static_cast<const C*>(values))[at.slot * call.of.value_size + m];
  }
  // The gradient of S without the part of the steps before.
  template <class Gpu>
  WEFT_GPU C Dstate(Gpu& gpu, const Place& at, int64_t d, int64_t m) const {
    const C value = OfState(gpu, call.dstates, at, d, m);
    if (call.of.betas == 0) return value;
    const C key = Reader{call.of}.Key(gpu, at.row, d);
    return value - key * (at.beta * OfValue(gpu, call.dw, at, m));
  }
  // The sum of the warp, to element i of `to`.
  template <class Gpu>
  WEFT_GPU static void Write(Gpu& gpu, void* to, int64_t i, double sum) {
    const double whole = WarpReduce(gpu, sum, Plus());
    if (gpu.lane() != 0) return;
    gpu.Global(static_cast<T*>(to))[i] = Narrow<T>(static_cast<Compute<T>>(whole));
  }
};

// dquery, dkey, and ddecay where each element of a key has its own: a warp for each such element.
template <typename T, typename C>
struct LinearAttentionKeyBody : LinearAttentionSums<T, C> {
  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const LinearAttentionOperands& of = this->call.of;
    const int64_t steps = this->call.end - this->call.begin;
    const int64_t rows = of.batch * of.kv_heads * steps * of.key_size;
    for (int64_t i = gpu.index() / kWarp; i < rows; i += gpu.stride() / kWarp) {
      const int64_t step = i / of.key_size;
      const int64_t head = step / steps;
      const auto at = this->Find(gpu, head, step - head * steps);
      const int64_t d = i - step * of.key_size;
      if (this->call.dkey != nullptr || this->call.ddecay != nullptr) KeySums(gpu, at, d);
      if (this->call.dquery != nullptr) QuerySums(gpu, at, d);
    }
  }

 private:
  using Place = typename LinearAttentionSums<T, C>::Place;
  using Reader = typename LinearAttentionSums<T, C>::Reader;

  template <class Gpu>
  WEFT_GPU void KeySums(Gpu& gpu, const Place& at, int64_t d) const {
    const LinearAttentionOperands& of = this->call.of;
    RunSum<C> dkey;
    RunSum<C> ddecay;
    for (int64_t m = gpu.lane(); m < of.value_size; m += kWarp) {
      const C state = this->OfState(gpu, this->call.states, at, d, m);
      const C after = this->OfState(gpu, this->call.dstates, at, d, m);
      C part = after * (at.beta * this->OfValue(gpu, this->call.u, at, m));
      if (of.betas != 0) part -= state * (at.beta * this->OfValue(gpu, this->call.dw, at, m));
      dkey.Add(part);
      ddecay.Add(this->Dstate(gpu, at, d, m) * state);
    }
    const int64_t element = at.row * of.key_size + d;
    if (this->call.dkey != nullptr) this->Write(gpu, this->call.dkey, element, dkey.Total());
    if (this->call.ddecay != nullptr && of.decays > 1) {
      this->Write(gpu, this->call.ddecay, element, ddecay.Total());
    }
  }

  template <class Gpu>
  WEFT_GPU void QuerySums(Gpu& gpu, const Place& at, int64_t d) const {
    const LinearAttentionOperands& of = this->call.of;
    const Reader reader{of};
    const C key = reader.Key(gpu, at.row, d);
    for (int64_t q = 0; q < reader.Group(); ++q) {
      const int64_t query = reader.QueryRow(at.row, q);
      RunSum<C> sum;
      for (int64_t m = gpu.lane(); this->call.dy != nullptr && m < of.value_size; m += kWarp) {
        const C w = at.beta * this->OfValue(gpu, this->call.u, at, m);
        const C state = this->OfState(gpu, this->call.states, at, d, m) + key * w;
        sum.Add(state * Reader::Read(gpu, this->call.dy, query * of.value_size + m));
      }
      this->Write(gpu, this->call.dquery, query * of.key_size + d, of.scale * sum.Total());
    }
  }
};

// ddecay where a head has one for all elements of its key: a warp for each.
template <typename T, typename C>
struct LinearAttentionDecayBody : LinearAttentionSums<T, C> {
  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const LinearAttentionOperands& of = this->call.of;
    const int64_t steps = this->call.end - this->call.begin;
    const int64_t rows = of.batch * of.kv_heads * steps;
    for (int64_t i = gpu.index() / kWarp; i < rows; i += gpu.stride() / kWarp) {
      const int64_t head = i / steps;
      const auto at = this->Find(gpu, head, i - head * steps);
      RunSum<C> sum;
      for (int64_t d = 0; d < of.key_size; ++d) {
        for (int64_t m = gpu.lane(); m < of.value_size; m += kWarp) {
          sum.Add(this->Dstate(gpu, at, d, m) * this->OfState(gpu, this->call.states, at, d, m));
        }
      }
      this->Write(gpu, this->call.ddecay, at.row, sum.Total());
    }
  }
};

// dbeta: a warp for each; over all heads where they share it.
template <typename T, typename C>
struct LinearAttentionBetaBody : LinearAttentionSums<T, C> {
  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const LinearAttentionOperands& of = this->call.of;
    const int64_t steps = this->call.end - this->call.begin;
    const int64_t rows = of.batch * steps * of.betas;
    const int64_t shared = of.kv_heads / of.betas;
    for (int64_t i = gpu.index() / kWarp; i < rows; i += gpu.stride() / kWarp) {
      const int64_t step = i / of.betas;
      const int64_t b = step / steps;
      const int64_t t = step - b * steps;
      const int64_t first = b * of.kv_heads + (i - step * of.betas) * shared;
      RunSum<C> sum;
      for (int64_t head = first; head < first + shared; ++head) {
        const auto at = this->Find(gpu, head, t);
        for (int64_t m = gpu.lane(); m < of.value_size; m += kWarp) {
          sum.Add(this->OfValue(gpu, this->call.dw, at, m) *
                  this->OfValue(gpu, this->call.u, at, m));
        }
      }
      const int64_t element =
          (b * of.steps + this->call.begin + t) * of.betas + (i - step * of.betas);
      this->Write(gpu, this->call.dbeta, element, sum.Total());
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_LINEAR_ATTENTION_BODY_H_
