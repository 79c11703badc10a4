// Layouts for tests and benchmarks of memory plans: of programs, and made up ones of any size.
#ifndef WEFT_GRAPH_SCHEDULE_TESTING_STEP_LAYOUTS_H_
#define WEFT_GRAPH_SCHEDULE_TESTING_STEP_LAYOUTS_H_

#include <cstdint>
#include <vector>

#include "graph/schedule/memory_plan.h"

namespace weft::testing {

// A layout, and the arena that greedy placement by size made of it in some fifty tries.
struct KnownLayout {
  std::vector<BufferLifetime> buffers;
  int64_t greedy_bytes = 0;
};

// The program of a training step of LeNet with Adam, one micro-batch of two samples.
inline KnownLayout LenetProgram() {
  return {{{4, 13, 58},     {4, 14, 55},      {3360, 17, 54},  {40, 18, 56},   {40320, 21, 50},
           {336, 22, 52},   {192000, 25, 46}, {480, 26, 48},   {9600, 30, 42}, {64, 30, 44},
           {600, 33, 38},   {24, 33, 40},     {6272, 0, 33},   {37632, 1, 32}, {102336, 1, 1},
           {9408, 3, 31},   {12800, 4, 28},   {22592, 4, 4},   {3200, 6, 27},  {960, 7, 23},
           {103168, 7, 7},  {672, 9, 19},     {33536, 9, 9},   {80, 11, 15},   {25344, 11, 11},
           {16, 12, 15},    {16, 13, 13},     {80, 15, 18},    {672, 16, 22},  {640, 16, 16},
           {1408, 17, 17},  {960, 20, 26},    {640, 20, 20},   {6144, 21, 21}, {3200, 24, 27},
           {640, 24, 24},   {8448, 25, 25},   {12800, 27, 30}, {9408, 29, 31}, {38400, 29, 29},
           {32064, 30, 30}, {37632, 31, 33},  {102336, 33, 33}},
          393408};
}

// The program of a training step of two transformer blocks of width 64 with Adam, two samples.
inline KnownLayout GptProgram() {
  return {{{4, 51, 169},      {4, 52, 166},      {40, 54, 167},     {2560, 56, 165},
           {256, 58, 163},    {65536, 60, 161},  {1024, 62, 159},   {65536, 64, 157},
           {256, 65, 153},    {256, 65, 155},    {256, 67, 151},    {16384, 69, 149},
           {768, 81, 147},    {49152, 83, 145},  {256, 84, 141},    {256, 84, 143},
           {256, 86, 139},    {65536, 88, 137},  {1024, 90, 135},   {65536, 92, 133},
           {256, 93, 129},    {256, 93, 131},    {256, 95, 127},    {16384, 97, 125},
           {768, 109, 123},   {49152, 111, 121}, {256, 112, 117},   {256, 112, 119},
           {16384, 0, 112},   {16384, 1, 111},   {256, 1, 112},     {256, 1, 112},
           {49152, 2, 4},     {640, 2, 2},       {16384, 4, 5},     {16384, 4, 6},
           {16384, 4, 11},    {16384, 5, 105},   {16384, 6, 104},   {32768, 7, 102},
           {640, 7, 7},       {16384, 11, 99},   {16384, 12, 13},   {640, 12, 12},
           {16384, 13, 97},   {16384, 14, 93},   {640, 14, 14},     {16384, 17, 92},
           {256, 17, 93},     {256, 17, 93},     {65536, 18, 89},   {640, 18, 18},
           {16384, 21, 84},   {640, 21, 21},     {16384, 24, 83},   {256, 24, 84},
           {256, 24, 84},     {49152, 25, 27},   {640, 25, 25},     {16384, 27, 28},
           {16384, 27, 29},   {16384, 27, 34},   {16384, 28, 77},   {16384, 29, 76},
           {32768, 30, 74},   {640, 30, 30},     {16384, 34, 71},   {16384, 35, 36},
           {640, 35, 35},     {16384, 36, 69},   {16384, 37, 65},   {640, 37, 37},
           {16384, 40, 64},   {256, 40, 65},     {256, 40, 65},     {65536, 41, 61},
           {640, 41, 41},     {16384, 44, 47},   {640, 44, 44},     {512, 47, 56},
           {80, 48, 53},      {640, 48, 48},     {16, 50, 53},      {16, 51, 51},
           {80, 53, 56},      {512, 55, 57},     {4864, 55, 55},    {4864, 56, 56},
           {16384, 57, 97},   {65536, 59, 64},   {17152, 59, 59},   {66304, 60, 60},
           {16384, 63, 65},   {66304, 63, 63},   {17152, 64, 64},   {16384, 65, 66},
           {2048, 65, 65},    {16384, 68, 70},   {17152, 68, 68},   {17152, 69, 69},
           {16384, 70, 72},   {32768, 71, 77},   {4864, 71, 71},    {16384, 72, 73},
           {4864, 72, 72},    {16384, 73, 80},   {16384, 76, 79},   {8960, 76, 76},
           {16384, 77, 78},   {2816, 77, 77},    {16384, 78, 80},   {16384, 79, 80},
           {49152, 80, 83},   {16384, 82, 84},   {49920, 82, 82},   {17152, 83, 83},
           {16384, 84, 85},   {2048, 84, 84},    {65536, 87, 92},   {17152, 87, 87},
           {66304, 88, 88},   {16384, 91, 93},   {66304, 91, 91},   {17152, 92, 92},
           {16384, 93, 94},   {2048, 93, 93},    {16384, 96, 98},   {17152, 96, 96},
           {17152, 97, 97},   {16384, 98, 100},  {32768, 99, 105},  {4864, 99, 99},
           {16384, 100, 101}, {4864, 100, 100},  {16384, 101, 108}, {16384, 104, 107},
           {8960, 104, 104},  {16384, 105, 106}, {2816, 105, 105},  {16384, 106, 108},
           {16384, 107, 108}, {49152, 108, 111}, {16384, 110, 112}, {49920, 110, 110},
           {17152, 111, 111}, {2048, 112, 112}},
          680128};
}

// The step of `layers` layers of about equal size: the forward pass keeps an activation of each for
// the backward pass, which makes the gradient of a weight that lives until the update, all with
// workspaces in between. Four buffers a layer.
inline std::vector<BufferLifetime> DeepStep(int layers) {
  std::vector<BufferLifetime> buffers;
  const int backward = 2 * layers;
  const int update = 4 * layers;
  uint32_t state = 1;
  const auto bytes = [&](int64_t around) {
    state = state * 1664525U + 1013904223U;
    return around / 2 + static_cast<int64_t>(state >> 8) % around;
  };
  for (int layer = 0; layer < layers; ++layer) {
    const int forward_at = 2 * layer;
    const int backward_at = backward + 2 * (layers - 1 - layer);
    buffers.push_back({bytes(8192), forward_at, backward_at + 1});
    buffers.push_back({bytes(4096), forward_at, forward_at + 1});
    buffers.push_back({bytes(8192), backward_at, backward_at + 2});
    buffers.push_back({bytes(2048), backward_at + 1, update + layer / 4});
  }
  return buffers;
}

}  // namespace weft::testing

#endif  // WEFT_GRAPH_SCHEDULE_TESTING_STEP_LAYOUTS_H_
