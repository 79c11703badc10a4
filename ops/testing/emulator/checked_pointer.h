// Memory as bodies see it on the emulator: like a T*, but that each access is checked.
#ifndef WEFT_OPS_TESTING_EMULATOR_CHECKED_POINTER_H_
#define WEFT_OPS_TESTING_EMULATOR_CHECKED_POINTER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ops/kernels/cuda/language/scalar.h"
#include "ops/testing/emulator/emulated_thread.h"

namespace weft::testing {

template <typename T>
class CheckedElement;

// Elements of T in global or shared memory, for one thread. A pointer to const reads alone.
template <typename T>
class CheckedPointer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using Value = std::remove_cv_t<T>;

  CheckedPointer(EmulatedThread& thread, MemoryRegion& region, uintptr_t address)
      : thread_(&thread), region_(&region), address_(address) {}
  // T* to const T*.
  template <typename Other>
  requires(std::is_same_v<const Other, T> && !std::is_same_v<Other, T>)
      CheckedPointer(const CheckedPointer<Other>& other)  // NOLINT: as of plain pointers
      : thread_(&other.thread()), region_(&other.region()), address_(other.address()) {}

  CheckedElement<T> operator[](int64_t i) const;
  CheckedElement<T> operator*() const;
  CheckedPointer operator+(int64_t n) const {
    return {*thread_, *region_, address_ + static_cast<uintptr_t>(n) * sizeof(T)};
  }
  CheckedPointer operator-(int64_t n) const { return *this + -n; }
  CheckedPointer& operator+=(int64_t n) { return *this = *this + n; }
  CheckedPointer& operator-=(int64_t n) { return *this = *this - n; }
  CheckedPointer& operator++() { return *this += 1; }
  CheckedPointer& operator--() { return *this -= 1; }
  int64_t operator-(const CheckedPointer& other) const {
    return static_cast<int64_t>(address_ - other.address_) / static_cast<int64_t>(sizeof(T));
  }
  bool operator==(std::nullptr_t) const { return address_ == 0; }
  explicit operator bool() const { return address_ != 0; }

  EmulatedThread& thread() const { return *thread_; }
  MemoryRegion& region() const { return *region_; }
  uintptr_t address() const { return address_; }

  // Reads an element, or a packet of them; zeros where it must not.
  template <typename U = Value>
  U Read() const {
    U value{};
    if (thread_->Access(*region_, address_, sizeof(U), alignof(U), AccessKind::kRead)) {
      std::memcpy(&value, reinterpret_cast<const void*>(address_), sizeof(U));
    }
    return value;
  }
  template <typename U = Value>
  void Write(const U& value) const {
    static_assert(!std::is_const_v<T>, "a body writes through a pointer to const");
    if (thread_->Access(*region_, address_, sizeof(U), alignof(U), AccessKind::kWrite)) {
      std::memcpy(reinterpret_cast<void*>(address_), &value, sizeof(U));
    }
  }
  // Replaces the element by `next` of it; returns what was there.
  template <typename Next>
  Value Update(Next next, AccessKind kind = AccessKind::kAtomic) const {
    static_assert(!std::is_const_v<T>, "a body writes through a pointer to const");
    Value value{};
    if (!thread_->Access(*region_, address_, sizeof(T), alignof(T), kind)) return value;
    thread_->OrderByAtomic(*region_, address_);
    std::memcpy(&value, reinterpret_cast<const void*>(address_), sizeof(T));
    const Value updated = next(value);
    std::memcpy(reinterpret_cast<void*>(address_), &updated, sizeof(T));
    return value;
  }

 private:
  EmulatedThread* thread_;
  MemoryRegion* region_;
  uintptr_t address_;
};

// p[i]: a value when read, a place when assigned to. It cannot be kept: `const auto x = p[i];
// f(x)` does not compile, for on a GPU x would be a copy; say `const T x = p[i]`.
template <typename T>
class CheckedElement {
 public:
  using Value = std::remove_cv_t<T>;

  explicit CheckedElement(CheckedPointer<T> place) : place_(place) {}
  CheckedElement(const CheckedElement&) = delete;

  operator Value() && { return place_.Read(); }  // NOLINT: as of plain references

  void operator=(const Value& value) && { place_.Write(value); }
  void operator=(CheckedElement&& other) && { place_.Write(other.place_.Read()); }
  template <typename V>
  void operator+=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() + std::forward<V>(value)));
  }
  template <typename V>
  void operator-=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() - std::forward<V>(value)));
  }
  template <typename V>
  void operator*=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() * std::forward<V>(value)));
  }
  template <typename V>
  void operator/=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() / std::forward<V>(value)));
  }
  template <typename V>
  void operator|=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() | std::forward<V>(value)));
  }
  template <typename V>
  void operator&=(V&& value) && {
    place_.Write(static_cast<Value>(place_.Read() & std::forward<V>(value)));
  }

 private:
  const CheckedPointer<T> place_;
};

template <typename T>
CheckedElement<T> CheckedPointer<T>::operator[](int64_t i) const {
  return CheckedElement<T>(*this + i);
}
template <typename T>
CheckedElement<T> CheckedPointer<T>::operator*() const {
  return CheckedElement<T>(*this);
}

// Widen(p[i]), which could not see the type of the element otherwise.
template <typename T>
cuda::Compute<std::remove_cv_t<T>> Widen(CheckedElement<T>&& element) {
  using Value = std::remove_cv_t<T>;
  return cuda::Widen(static_cast<Value>(static_cast<CheckedElement<T>&&>(element)));
}

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_CHECKED_POINTER_H_
