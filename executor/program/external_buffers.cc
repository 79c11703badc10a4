#include "executor/program/external_buffers.h"

namespace weft {

void ExternalBuffers::Find(std::vector<Instruction>& compute,
                           std::vector<Instruction>& communication) {
  const BufferTable& buffers = step_.buffers;
  const auto add = [&](BufferIndex buffer) -> Places* {
    if (buffer == kNoBuffer || buffers.is_fixed(buffer) || buffers.in_group(buffer)) {
      return nullptr;
    }
    const BufferIndex root = buffers.Root(buffer);
    return buffers.bytes(root) < kMinMovedBytes ? nullptr : &places_[root];
  };
  for (const LoweredReport& report : step_.reports) {
    if (Places* const places = add(report.buffer)) places->is_report = true;
  }
  for (const LoweredInstruction& lowered : step_.compute) {
    if (const auto* const fill = lowered.As<lowered::Fill>()) add(fill->into);
  }
  if (places_.empty()) return;
  for (size_t i = 0; i < compute.size(); ++i) AddPlaces(step_.compute[i], compute[i]);
  for (size_t i = 0; i < communication.size(); ++i) {
    AddPlaces(step_.communication[i], communication[i]);
  }
}

void ExternalBuffers::AddPlaces(const LoweredInstruction& lowered, Instruction& instruction) {
  const auto find = [&](BufferIndex buffer) -> Places* {
    if (buffer == kNoBuffer) return nullptr;
    const auto found = places_.find(step_.buffers.Root(buffer));
    return found == places_.end() ? nullptr : &found->second;
  };
  const bool is_fill = lowered.As<lowered::Fill>() != nullptr;
  VisitAddresses(
      lowered, instruction,
      [&](BufferIndex buffer, const void*& address) {
        if (Places* const places = find(buffer)) places->readers.push_back(&address);
      },
      [&](BufferIndex buffer, void*& address) {
        Places* const places = find(buffer);
        if (places == nullptr) return;
        places->writers.push_back(&address);
        ++(is_fill ? places->fills : places->other_writers);
      });
}

void ExternalBuffers::Reset(void* arena) {
  arena_ = arena;
  for (auto& [root, places] : places_) places.moved_to = nullptr;
}

const ExternalBuffers::Places* ExternalBuffers::PlacesOf(BufferIndex buffer) const {
  if (buffer == kNoBuffer || places_.empty()) return nullptr;
  const auto found = places_.find(step_.buffers.Root(buffer));
  return found == places_.end() ? nullptr : &found->second;
}

int64_t ExternalBuffers::BytesOfInput(BufferIndex buffer) const {
  const Places* const places = PlacesOf(buffer);
  const bool can_move =
      places != nullptr && places->fills == 1 && places->other_writers == 0 && !places->is_report;
  return can_move ? step_.buffers.bytes(step_.buffers.Root(buffer)) : 0;
}

int64_t ExternalBuffers::BytesOfReport(BufferIndex buffer) const {
  const Places* const places = PlacesOf(buffer);
  const bool can_move = places != nullptr && places->is_report;
  return can_move ? step_.buffers.bytes(step_.buffers.Root(buffer)) : 0;
}

void ExternalBuffers::Move(BufferIndex buffer, void* address) {
  Places& places = places_.at(step_.buffers.Root(buffer));
  if (places.moved_to == address) return;
  places.moved_to = address;
  void* const now = AddressOf(buffer);
  for (const void** const reader : places.readers) *reader = now;
  for (void** const writer : places.writers) *writer = now;
}

void* ExternalBuffers::AddressOf(BufferIndex buffer) const {
  const Places* const places = PlacesOf(buffer);
  if (places != nullptr && places->moved_to != nullptr) return places->moved_to;
  return step_.buffers.AddressIn(buffer, arena_);
}

}  // namespace weft
