// What the bodies of all cells share, and those that begin and end a run.
#ifndef WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/recurrent/cell_function.h"
#include "ops/kernels/cuda/recurrent/recurrent_launch.h"

namespace weft::cuda {

// An element of a state.
struct CellPlace {
  int64_t index;  // of the element
  int64_t state;  // of its state: d * batch + b
  int64_t d;
  int64_t b;
  int64_t i;  // of [0, hidden)
  int64_t length;
};

// Where it is in a step.
struct CellTime {
  bool runs;    // the sample has this step
  int64_t t;    // its time; of a sample that has ended, the step's number
  int64_t row;  // of what is kept: [directions, rows of X]
};

template <class Gpu>
WEFT_GPU CellPlace CellPlaceOf(Gpu& gpu, const RecurrentSteps& steps, int64_t index) {
  const auto in_state = steps.by_hidden.Divide(static_cast<int32_t>(index));
  const auto in_batch = steps.by_batch.Divide(in_state.quotient);
  CellPlace place = {index,         in_state.quotient, in_batch.quotient,
                     in_batch.rest, in_state.rest,     steps.time};
  if (steps.lengths != nullptr) {
    const int64_t length = gpu.Global(steps.lengths)[place.b];
    place.length = length < 0 ? 0 : length > steps.time ? steps.time : length;
  }
  return place;
}

WEFT_GPU int64_t TimeOfStep(const RecurrentSteps& steps, const CellPlace& place, int64_t step) {
  const bool backwards = place.d == 1 || steps.reverse != 0;
  return backwards ? place.length - 1 - step : step;
}

WEFT_GPU CellTime TimeAt(const RecurrentSteps& steps, const CellPlace& place, int64_t step) {
  const bool runs = step < place.length;
  const int64_t t = runs ? TimeOfStep(steps, place, step) : step;
  return {runs, t, place.d * steps.rows() + steps.Row(t, place.b)};
}

// An element of an operand; zero where there is none.
template <class Gpu, typename T>
WEFT_GPU Compute<T> ReadOrZero(Gpu& gpu, const T* from, int64_t i) {
  if (from == nullptr) return Compute<T>(0);
  const T value = gpu.Global(from)[i];
  return Widen(value);
}
template <class Gpu, typename T>
WEFT_GPU void WriteIfWanted(Gpu& gpu, T* to, int64_t i, Compute<T> value) {
  if (to != nullptr) gpu.Global(to)[i] = Narrow<T>(value);
}

// Calls body(place) for the elements of this thread.
template <class Gpu, class Fn>
WEFT_GPU void ForEachPlace(Gpu& gpu, const RecurrentSteps& steps, Fn body) {
  const int64_t count = steps.elements();
  for (int64_t index = gpu.index(); index < count; index += gpu.stride()) {
    body(CellPlaceOf(gpu, steps, index));
  }
}

// What gate `gate` gets from the input, with the bias of W.
template <typename T, class Gpu>
WEFT_GPU Compute<T> FromInput(Gpu& gpu, const RecurrentSteps& steps, const CellOperands<T>& cell,
                              const CellPlace& place, int64_t t, int64_t gate) {
  const int64_t width = steps.gates * steps.hidden;
  const int64_t at = gate * steps.hidden + place.i;
  const int64_t row = steps.Row(t, place.b) * steps.directions + place.d;
  return ReadOrZero(gpu, cell.from_input, row * width + at) +
         ReadOrZero(gpu, cell.bias, 2 * place.d * width + at);
}

// What it gets from the state, with the bias of R; `through_r`: gates that from_state has.
template <typename T, class Gpu>
WEFT_GPU Compute<T> FromState(Gpu& gpu, const RecurrentSteps& steps, const CellOperands<T>& cell,
                              const CellPlace& place, int64_t through_r, int64_t gate) {
  const int64_t at = gate * steps.hidden + place.i;
  return ReadOrZero(gpu, cell.from_state, place.state * through_r * steps.hidden + at) +
         ReadOrZero(gpu, cell.bias, (2 * place.d + 1) * steps.gates * steps.hidden + at);
}

// Keeps element `part` * hidden + i of a row of `parts` * hidden.
template <typename T, class Gpu>
WEFT_GPU void KeepPart(Gpu& gpu, const RecurrentSteps& steps, T* kept, const CellPlace& place,
                       const CellTime& time, int64_t parts, int64_t part, Compute<T> value) {
  WriteIfWanted(gpu, kept, (time.row * parts + part) * steps.hidden + place.i, value);
}
template <typename T, class Gpu>
WEFT_GPU void ClearParts(Gpu& gpu, const RecurrentSteps& steps, T* kept, const CellPlace& place,
                         const CellTime& time, int64_t parts) {
  for (int64_t part = 0; part < parts; ++part) {
    KeepPart<T>(gpu, steps, kept, place, time, parts, part, Compute<T>(0));
  }
}

template <typename T, class Gpu>
WEFT_GPU void EmitY(Gpu& gpu, const RecurrentSteps& steps, T* y, const CellPlace& place,
                    const CellTime& time, Compute<T> value) {
  WriteIfWanted(gpu, y, steps.YOffset(time.t, place.d, place.b) + place.i, value);
}

// All that arrives at the state after a step, but for what goes past the gates of the next.
template <typename T, class Gpu>
WEFT_GPU Compute<T> ArrivingAt(Gpu& gpu, const RecurrentSteps& steps, const GradOperands<T>& cell,
                               const CellPlace& place, const CellTime& time, int64_t step) {
  const int64_t y = steps.YOffset(time.t, place.d, place.b) + place.i;
  const Compute<T> later =
      step + 1 < place.length
          ? ReadOrZero(gpu, cell.through_r, place.index)
          : ReadOrZero(gpu, cell.final_h, steps.StateOffset(place.d, place.b) + place.i);
  return later + ReadOrZero(gpu, cell.dy, y);
}

// The state before a step.
template <typename T, class Gpu>
WEFT_GPU Compute<T> PreviousH(Gpu& gpu, const RecurrentSteps& steps, const GradOperands<T>& cell,
                              const CellPlace& place, int64_t step) {
  if (step == 0) {
    return ReadOrZero(gpu, cell.initial_h, steps.StateOffset(place.d, place.b) + place.i);
  }
  const int64_t t = TimeOfStep(steps, place, step - 1);
  return ReadOrZero(gpu, cell.y, steps.YOffset(t, place.d, place.b) + place.i);
}

// ---- Before and after the steps.

struct CheckLengthsBody {
  RecurrentSteps steps;
  FaultReport report;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t b = gpu.index(); b < steps.batch; b += gpu.stride()) {
      const int32_t length = gpu.Global(steps.lengths)[b];
      InRange(gpu, report, length, b);
    }
  }
};

template <typename T>
struct StartBody {
  RecurrentSteps steps;
  StartStates<T> start;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const int64_t from = steps.StateOffset(place.d, place.b) + place.i;
      const Compute<T> h = ReadOrZero(gpu, start.initial_h, from);
      WriteIfWanted(gpu, start.h, place.index, h);
      WriteIfWanted(gpu, start.wide_h, place.index, h);
      if (start.c == nullptr) return;
      WriteIfWanted(gpu, start.c, place.index, ReadOrZero(gpu, start.initial_c, from));
    });
  }
};

template <typename T>
struct EndBody {
  RecurrentSteps steps;
  EndStates<T> end;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const int64_t to = steps.StateOffset(place.d, place.b) + place.i;
      if (end.final_h != nullptr) {
        WriteIfWanted(gpu, end.final_h, to, ReadOrZero(gpu, end.h, place.index));
      }
      if (end.final_c != nullptr) {
        WriteIfWanted(gpu, end.final_c, to, ReadOrZero(gpu, end.c, place.index));
      }
    });
  }
};

template <typename T>
struct EndGradientsBody {
  RecurrentSteps steps;
  EndGradients<T> end;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    using S = Compute<T>;
    ForEachPlace(gpu, steps, [&](const CellPlace& place) {
      const int64_t to = steps.StateOffset(place.d, place.b) + place.i;
      const bool runs = place.length > 0;
      if (end.initial_h != nullptr) {
        const S dh = runs ? ReadOrZero(gpu, end.through_r, place.index) +
                                ReadOrZero(gpu, end.past, place.index)
                          : ReadOrZero(gpu, end.final_h, to);
        WriteIfWanted(gpu, end.initial_h, to, dh);
      }
      if (end.initial_c != nullptr) {
        const S dc = runs ? ReadOrZero(gpu, end.dc, place.index) : ReadOrZero(gpu, end.final_c, to);
        WriteIfWanted(gpu, end.initial_c, to, dc);
      }
    });
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RECURRENT_RECURRENT_BODY_H_
