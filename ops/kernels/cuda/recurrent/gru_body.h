// The element-wise parts of a step of GRU and RNN, forward and backward.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_GRU_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_GRU_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/recurrent/recurrent_body.h"

namespace weft::cuda {

inline constexpr int64_t kGruGates = 3;
inline constexpr int64_t kGruUpdate = 0;
inline constexpr int64_t kGruReset = 1;
inline constexpr int64_t kGruCandidate = 2;
// What a GRU that is linear before reset keeps behind its gates: R h' + bias of the candidate.
inline constexpr int64_t kGruFromState = 3;

// ---- RNN.

template <typename T>
struct RnnStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  RnnStep<T> rnn;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using S = Compute<T>;
    const CellOperands<T>& cell = rnn.cell;
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const CellTime time = TimeAt(steps, place, step);
      if (!time.runs) {
        EmitY<T>(gpu, steps, cell.y, place, time, S(0));
        ClearParts<T>(gpu, steps, cell.gates, place, time, 1);
        return;
      }
      const CellActivation& activation = rnn.activation[place.d];
      const S argument =
          FromInput(gpu, steps, cell, place, time.t, 0) + FromState(gpu, steps, cell, place, 1, 0);
      const S h = GateValue(activation, cell.clip, argument);
      WriteIfWanted(gpu, cell.h, place.index, h);
      EmitY<T>(gpu, steps, cell.y, place, time, h);
      KeepPart<T>(gpu, steps, cell.gates, place, time, 1, 0, KeptOf(activation, argument, h));
    });
  }
};

template <typename T>
struct RnnGradStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  RnnGradStep<T> rnn;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using S = Compute<T>;
    const GradOperands<T>& cell = rnn.cell;
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const CellTime time = TimeAt(steps, place, step);
      S dargument = S(0);
      S previous = S(0);
      if (time.runs) {
        const S kept = ReadOrZero(gpu, cell.gates, time.row * steps.hidden + place.i);
        const CellGate<S> gate = KeptGate(rnn.activation[place.d], cell.clip, kept);
        dargument = ArrivingAt(gpu, steps, cell, place, time, step) * gate.slope;
        if (cell.previous_h != nullptr) previous = PreviousH(gpu, steps, cell, place, step);
      }
      WriteIfWanted(gpu, cell.operand, place.index, dargument);
      KeepPart<T>(gpu, steps, cell.dgates, place, time, 1, 0, dargument);
      KeepPart<T>(gpu, steps, cell.previous_h, place, time, 1, 0, previous);
    });
  }
};

// ---- GRU.

// The state itself: in S, where T is shorter.
template <typename T, class Gpu>
WEFT_GPU Compute<T> StateOf(Gpu& gpu, const GruStep<T>& gru, int64_t index) {
  if (gru.wide_h != nullptr) return ReadOrZero(gpu, gru.wide_h, index);
  const T h = gpu.Global(gru.cell.h)[index];
  return Widen(h);
}

// The reset gate of a step, kept where that is wanted.
template <typename T, class Gpu>
WEFT_GPU Compute<T> ResetGate(Gpu& gpu, const RecurrentSteps& steps, const GruStep<T>& gru,
                              const CellPlace& place, const CellTime& time) {
  using S = Compute<T>;
  const CellOperands<T>& cell = gru.cell;
  const CellActivation& gate = gru.gate[place.d];
  const S argument = FromInput(gpu, steps, cell, place, time.t, kGruReset) +
                     FromState(gpu, steps, cell, place, gru.linear != 0 ? 3 : 2, kGruReset);
  const S reset = GateValue(gate, cell.clip, argument);
  KeepPart<T>(gpu, steps, cell.gates, place, time, gru.linear != 0 ? 4 : 3, kGruReset,
              KeptOf(gate, argument, reset));
  return reset;
}

// What the candidate is to see of the state.
template <typename T>
struct GruResetBody {
  RecurrentSteps steps;
  int64_t step = 0;
  GruStep<T> gru;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using S = Compute<T>;
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const CellTime time = TimeAt(steps, place, step);
      S seen = S(0);
      if (time.runs) {
        seen = ResetGate(gpu, steps, gru, place, time) * StateOf(gpu, gru, place.index);
      }
      WriteIfWanted(gpu, gru.seen, place.index, seen);
    });
  }
};

template <typename T>
struct GruStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  GruStep<T> gru;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) { Step(gpu, place); });
  }

 private:
  using S = Compute<T>;

  template <class Gpu>
  WEFT_GPU void Step(Gpu& gpu, const CellPlace& place) const {
    const CellOperands<T>& cell = gru.cell;
    const int64_t parts = gru.linear != 0 ? 4 : 3;
    const CellTime time = TimeAt(steps, place, step);
    if (!time.runs) {
      EmitY<T>(gpu, steps, cell.y, place, time, S(0));
      ClearParts<T>(gpu, steps, cell.gates, place, time, parts);
      return;
    }
    const CellActivation& gate = gru.gate[place.d];
    const CellActivation& shape = gru.hidden[place.d];
    const S to_update = FromInput(gpu, steps, cell, place, time.t, kGruUpdate) +
                        FromState(gpu, steps, cell, place, gru.linear != 0 ? 3 : 2, kGruUpdate);
    const S update = GateValue(gate, cell.clip, to_update);
    const S argument = FromInput(gpu, steps, cell, place, time.t, kGruCandidate) +
                       CandidateFromState(gpu, place, time);
    const S candidate = GateValue(shape, cell.clip, argument);
    const S h = (1 - update) * candidate + update * StateOf(gpu, gru, place.index);
    WriteIfWanted(gpu, cell.h, place.index, h);
    WriteIfWanted(gpu, gru.wide_h, place.index, h);
    EmitY<T>(gpu, steps, cell.y, place, time, h);
    KeepPart<T>(gpu, steps, cell.gates, place, time, parts, kGruUpdate,
                KeptOf(gate, to_update, update));
    KeepPart<T>(gpu, steps, cell.gates, place, time, parts, kGruCandidate,
                KeptOf(shape, argument, candidate));
  }

  template <class Gpu>
  WEFT_GPU S CandidateFromState(Gpu& gpu, const CellPlace& place, const CellTime& time) const {
    const CellOperands<T>& cell = gru.cell;
    if (gru.linear == 0) {
      const int64_t bias = (6 * place.d + 3 + kGruCandidate) * steps.hidden + place.i;
      return ReadOrZero(gpu, gru.candidate, place.index) + ReadOrZero(gpu, cell.bias, bias);
    }
    const S from_state = FromState(gpu, steps, cell, place, 3, kGruCandidate);
    KeepPart<T>(gpu, steps, cell.gates, place, time, 4, kGruFromState, from_state);
    return ResetGate(gpu, steps, gru, place, time) * from_state;
  }
};

// What was kept of a gate.
template <typename T, class Gpu>
WEFT_GPU CellGate<Compute<T>> GruGate(Gpu& gpu, const RecurrentSteps& steps,
                                      const GruGradStep<T>& gru, const CellPlace& place,
                                      const CellTime& time, int64_t gate) {
  const int64_t parts = gru.linear != 0 ? 4 : 3;
  const int64_t at = (time.row * parts + gate) * steps.hidden + place.i;
  const CellActivation& activation =
      gate == kGruCandidate ? gru.hidden[place.d] : gru.gate[place.d];
  return KeptGate(activation, gru.cell.clip, ReadOrZero(gpu, gru.cell.gates, at));
}

// The gradient of what a gate's argument got from the state: the product's operand, and an output.
template <typename T, class Gpu>
WEFT_GPU void PutFromState(Gpu& gpu, const RecurrentSteps& steps, const GruGradStep<T>& gru,
                           const CellPlace& place, const CellTime& time, int64_t gate,
                           Compute<T> value) {
  KeepPart<T>(gpu, steps, gru.from_state, place, time, kGruGates, gate, value);
  if (gru.linear == 0 && gate == kGruCandidate) {
    WriteIfWanted(gpu, gru.candidate, place.index, value);
    return;
  }
  const int64_t through_r = gru.linear != 0 ? 3 : 2;
  WriteIfWanted(gpu, gru.cell.operand, (place.state * through_r + gate) * steps.hidden + place.i,
                value);
}

template <typename T>
struct GruGradStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  GruGradStep<T> gru;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) { Step(gpu, place); });
  }

 private:
  using S = Compute<T>;

  template <class Gpu>
  WEFT_GPU void Step(Gpu& gpu, const CellPlace& place) const {
    const GradOperands<T>& cell = gru.cell;
    const CellTime time = TimeAt(steps, place, step);
    if (!time.runs) {
      ClearParts<T>(gpu, steps, cell.dgates, place, time, kGruGates);
      ClearParts<T>(gpu, steps, cell.previous_h, place, time, 1);
      ClearParts<T>(gpu, steps, gru.seen, place, time, 1);
      for (int64_t gate = 0; gate < kGruGates; ++gate) {
        PutFromState<T>(gpu, steps, gru, place, time, gate, S(0));
      }
      return;
    }
    const CellGate<S> update = GruGate(gpu, steps, gru, place, time, kGruUpdate);
    const CellGate<S> candidate = GruGate(gpu, steps, gru, place, time, kGruCandidate);
    const S old = PreviousH(gpu, steps, cell, place, step);
    S dh = ArrivingAt(gpu, steps, cell, place, time, step);
    if (step + 1 < place.length) dh += ReadOrZero(gpu, gru.past, place.index);
    const S dupdate = dh * (old - candidate.value) * update.slope;
    const S dcandidate = dh * (1 - update.value) * candidate.slope;
    WriteIfWanted(gpu, gru.past, place.index, dh * update.value);
    KeepPart<T>(gpu, steps, cell.previous_h, place, time, 1, 0, old);
    Put(gpu, place, time, kGruUpdate, dupdate);
    Put(gpu, place, time, kGruCandidate, dcandidate);
    PutFromState<T>(gpu, steps, gru, place, time, kGruUpdate, dupdate);
    if (gru.linear == 0) {
      PutFromState<T>(gpu, steps, gru, place, time, kGruCandidate, dcandidate);
      return;
    }
    const CellGate<S> reset = GruGate(gpu, steps, gru, place, time, kGruReset);
    const int64_t kept = (time.row * 4 + kGruFromState) * steps.hidden + place.i;
    const S dreset = dcandidate * ReadOrZero(gpu, cell.gates, kept) * reset.slope;
    Put(gpu, place, time, kGruReset, dreset);
    PutFromState<T>(gpu, steps, gru, place, time, kGruReset, dreset);
    PutFromState<T>(gpu, steps, gru, place, time, kGruCandidate, dcandidate * reset.value);
    KeepPart<T>(gpu, steps, gru.seen, place, time, 1, 0, reset.value * old);
  }

  template <class Gpu>
  WEFT_GPU void Put(Gpu& gpu, const CellPlace& place, const CellTime& time, int64_t gate,
                    S value) const {
    KeepPart<T>(gpu, steps, gru.cell.dgates, place, time, kGruGates, gate, value);
  }
};

// The reset gate, when it is known what came back through R from the candidate.
template <typename T>
struct GruGradResetBody {
  RecurrentSteps steps;
  int64_t step = 0;
  GruGradStep<T> gru;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using S = Compute<T>;
    const GradOperands<T>& cell = gru.cell;
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const CellTime time = TimeAt(steps, place, step);
      if (!time.runs) return;
      const CellGate<S> reset = GruGate(gpu, steps, gru, place, time, kGruReset);
      const S old = PreviousH(gpu, steps, cell, place, step);
      const S dseen = ReadOrZero(gpu, gru.dseen, place.index);
      const S dreset = dseen * old * reset.slope;
      const S past = ReadOrZero(gpu, gru.past, place.index);
      WriteIfWanted(gpu, gru.past, place.index, past + dseen * reset.value);
      KeepPart<T>(gpu, steps, cell.dgates, place, time, kGruGates, kGruReset, dreset);
      PutFromState<T>(gpu, steps, gru, place, time, kGruReset, dreset);
      KeepPart<T>(gpu, steps, gru.seen, place, time, 1, 0, reset.value * old);
    });
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_GRU_BODY_H_
