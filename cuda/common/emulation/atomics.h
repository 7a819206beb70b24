// Atomic operations on global and shared memory; relaxed order, as in CUDA.
#pragma once
#include <string.h>

namespace alpha_emulation {

template <class T, class Update>
T atomic_update(T* place, Update update) {
  T old, updated;
  __atomic_load(place, &old, __ATOMIC_RELAXED);
  do updated = update(old);
  while (!__atomic_compare_exchange(place, &old, &updated, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

// Keeps the value's type from being deduced, so that atomicAdd(unsigned*, 1) works as it does in CUDA.
template <class T>
struct Same {
  using Type = T;
};

}  // namespace alpha_emulation

template <class T>
T atomicAdd(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return T(old + value); });
}
template <class T>
T atomicSub(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return T(old - value); });
}
template <class T>
T atomicMax(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicAnd(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return T(old & value); });
}
template <class T>
T atomicOr(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return T(old | value); });
}
template <class T>
T atomicExch(T* place, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* place, typename alpha_emulation::Same<T>::Type expected, typename alpha_emulation::Same<T>::Type value) {
  return alpha_emulation::atomic_update(place, [=](T old) { return old == expected ? value : old; });
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
