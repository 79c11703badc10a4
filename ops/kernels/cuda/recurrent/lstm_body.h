// The element-wise part of a step of LSTM, forward and backward.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_LSTM_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_LSTM_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/recurrent/recurrent_body.h"

namespace weft::cuda {

inline constexpr int64_t kLstmGates = 4;
inline constexpr int64_t kLstmInput = 0;
inline constexpr int64_t kLstmOutput = 1;
inline constexpr int64_t kLstmForget = 2;
inline constexpr int64_t kLstmCandidate = 3;

// The peephole of one of the first three gates.
template <typename T, class Gpu>
WEFT_GPU Compute<T> PeepholeOf(Gpu& gpu, const RecurrentSteps& steps, const T* peepholes,
                               const CellPlace& place, int64_t gate) {
  return ReadOrZero(gpu, peepholes, (3 * place.d + gate) * steps.hidden + place.i);
}

template <typename T>
struct LstmStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  LstmStep<T> lstm;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) { Step(gpu, place); });
  }

 private:
  using S = Compute<T>;

  template <class Gpu>
  WEFT_GPU void Step(Gpu& gpu, const CellPlace& place) const {
    const CellOperands<T>& cell = lstm.cell;
    const CellTime time = TimeAt(steps, place, step);
    if (!time.runs) {
      EmitY<T>(gpu, steps, cell.y, place, time, S(0));
      ClearParts<T>(gpu, steps, cell.gates, place, time, kLstmGates);
      ClearParts<T>(gpu, steps, lstm.cells, place, time, 1);
      return;
    }
    const CellActivation& gate = lstm.gate[place.d];
    const CellActivation& shape = lstm.candidate[place.d];
    const auto c = gpu.Global(lstm.c);
    const S old = c[place.index];
    S to_in = Argument(gpu, place, time, kLstmInput);
    S to_out = Argument(gpu, place, time, kLstmOutput);
    S to_forget = Argument(gpu, place, time, kLstmForget);
    const S to_candidate = Argument(gpu, place, time, kLstmCandidate);
    // Without peepholes, nothing is added: a cell may be infinite.
    if (lstm.peepholes != nullptr) {
      to_in += PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmInput) * old;
      to_forget += PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmForget) * old;
    }
    const S in = GateValue(gate, cell.clip, to_in);
    const S forget = lstm.couple != 0 ? 1 - in : GateValue(gate, cell.clip, to_forget);
    const S candidate = GateValue(shape, cell.clip, to_candidate);
    const S state = forget * old + in * candidate;
    if (lstm.peepholes != nullptr) {
      to_out += PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmOutput) * state;
    }
    const S out = GateValue(gate, cell.clip, to_out);
    const S h = out * CellValue(lstm.output[place.d], state);
    c[place.index] = state;
    WriteIfWanted(gpu, cell.h, place.index, h);
    EmitY<T>(gpu, steps, cell.y, place, time, h);
    KeepPart<T>(gpu, steps, lstm.cells, place, time, 1, 0, state);
    if (cell.gates == nullptr) return;
    Keep(gpu, place, time, kLstmInput, KeptOf(gate, to_in, in));
    Keep(gpu, place, time, kLstmOutput, KeptOf(gate, to_out, out));
    Keep(gpu, place, time, kLstmForget, KeptOf(gate, to_forget, forget));
    Keep(gpu, place, time, kLstmCandidate, KeptOf(shape, to_candidate, candidate));
  }

  template <class Gpu>
  WEFT_GPU S Argument(Gpu& gpu, const CellPlace& place, const CellTime& time, int64_t gate) const {
    return FromInput(gpu, steps, lstm.cell, place, time.t, gate) +
           FromState(gpu, steps, lstm.cell, place, kLstmGates, gate);
  }
  template <class Gpu>
  WEFT_GPU void Keep(Gpu& gpu, const CellPlace& place, const CellTime& time, int64_t gate,
                     S value) const {
    KeepPart<T>(gpu, steps, lstm.cell.gates, place, time, kLstmGates, gate, value);
  }
};

template <typename T>
struct LstmGradStepBody {
  RecurrentSteps steps;
  int64_t step = 0;
  LstmGradStep<T> lstm;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) { Step(gpu, place); });
  }

 private:
  using S = Compute<T>;

  template <class Gpu>
  WEFT_GPU void Step(Gpu& gpu, const CellPlace& place) const {
    const GradOperands<T>& cell = lstm.cell;
    const CellTime time = TimeAt(steps, place, step);
    if (!time.runs) {
      for (int64_t gate = 0; gate < kLstmGates; ++gate) Put(gpu, place, time, gate, S(0));
      KeepPart<T>(gpu, steps, cell.previous_h, place, time, 1, 0, S(0));
      KeepPart<T>(gpu, steps, lstm.previous_c, place, time, 1, 0, S(0));
      return;
    }
    const int64_t in_state = steps.StateOffset(place.d, place.b) + place.i;
    const CellActivation& shape = lstm.output[place.d];
    const CellGate<S> in = Gate(gpu, place, time, kLstmInput);
    const CellGate<S> out = Gate(gpu, place, time, kLstmOutput);
    const CellGate<S> candidate = Gate(gpu, place, time, kLstmCandidate);
    const CellGate<S> forget =
        lstm.couple != 0 ? CellGate<S>{1 - in.value, S(0)} : Gate(gpu, place, time, kLstmForget);
    const S old = PreviousC(gpu, place, in_state);
    const S c = ReadOrZero(gpu, lstm.cells, time.row * steps.hidden + place.i);
    const S shown = CellValue(shape, c);
    const S dh = ArrivingAt(gpu, steps, cell, place, time, step);
    const S later = step + 1 < place.length ? ReadOrZero(gpu, lstm.dc, place.index)
                                            : ReadOrZero(gpu, lstm.final_c, in_state);
    const S dout = dh * shown * out.slope;
    const S dstate = later + dh * out.value * CellSlope(shape, c, shown) +
                     PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmOutput) * dout;
    const S coupled = lstm.couple != 0 ? old : S(0);
    const S din = dstate * (candidate.value - coupled) * in.slope;
    const S dforget = dstate * old * forget.slope;
    Put(gpu, place, time, kLstmInput, din);
    Put(gpu, place, time, kLstmOutput, dout);
    Put(gpu, place, time, kLstmForget, dforget);
    Put(gpu, place, time, kLstmCandidate, dstate * in.value * candidate.slope);
    const S before = dstate * forget.value +
                     PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmInput) * din +
                     PeepholeOf(gpu, steps, lstm.peepholes, place, kLstmForget) * dforget;
    WriteIfWanted(gpu, lstm.dc, place.index, before);
    KeepPart<T>(gpu, steps, lstm.previous_c, place, time, 1, 0, old);
    if (cell.previous_h == nullptr) return;
    KeepPart<T>(gpu, steps, cell.previous_h, place, time, 1, 0,
                PreviousH(gpu, steps, cell, place, step));
  }

  template <class Gpu>
  WEFT_GPU CellGate<S> Gate(Gpu& gpu, const CellPlace& place, const CellTime& time,
                            int64_t gate) const {
    const int64_t at = (time.row * kLstmGates + gate) * steps.hidden + place.i;
    const CellActivation& activation =
        gate == kLstmCandidate ? lstm.candidate[place.d] : lstm.gate[place.d];
    return KeptGate(activation, lstm.cell.clip, ReadOrZero(gpu, lstm.cell.gates, at));
  }
  template <class Gpu>
  WEFT_GPU S PreviousC(Gpu& gpu, const CellPlace& place, int64_t in_state) const {
    if (step == 0) return ReadOrZero(gpu, lstm.initial_c, in_state);
    const CellTime before = TimeAt(steps, place, step - 1);
    return ReadOrZero(gpu, lstm.cells, before.row * steps.hidden + place.i);
  }
  // The gradient of a gate's argument, for all steps and for the product of this one.
  template <class Gpu>
  WEFT_GPU void Put(Gpu& gpu, const CellPlace& place, const CellTime& time, int64_t gate,
                    S value) const {
    KeepPart<T>(gpu, steps, lstm.cell.dgates, place, time, kLstmGates, gate, value);
    WriteIfWanted(gpu, lstm.cell.operand,
                  (place.state * kLstmGates + gate) * steps.hidden + place.i, value);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_LSTM_BODY_H_
