package chp

import (
	"hash/maphash"
	"sync/atomic"
)

// viewTable is a hash table of decoded values with one writer and any number of readers,
// which take no lock. Collisions go to the next free slot. A slot that has an item keeps
// it, also when the item's key is deleted, until the writer builds new slots. An item
// outlives its slots, so a reader of old slots sees new values. Readers may still use old
// slots and items; the garbage collector frees them later.
type viewTable[T any] struct {
	seed  maphash.Seed
	slots atomic.Pointer[[]viewSlot[T]] // a power of two
	keys  atomic.Int64                  // with a value

	// Owned by the writer.
	used    int // slots with an item
	present int // items whose key exists
}

type viewSlot[T any] struct{ item atomic.Pointer[viewItem[T]] }

type viewItem[T any] struct {
	hash  uint64
	key   string
	value atomic.Pointer[T] // nil if the key does not exist or never had a valid value

	// Owned by the writer.
	present bool   // the key exists
	sum     uint64 // hash of the encoded value
	round   uint64 // of View.round, when the key was last seen
}

func (t *viewTable[T]) init() {
	t.seed = maphash.MakeSeed()
	t.replace(leastViewSlots)
}

// find returns the item of a key, or nil. Readers may call it.
func (t *viewTable[T]) find(hash uint64, key string) *viewItem[T] {
	slots := *t.slots.Load()
	for i := hash; ; i++ {
		it := slots[i&uint64(len(slots)-1)].item.Load()
		if it == nil || it.hash == hash && it.key == key {
			return it
		}
	}
}

// get returns the value of a key, or nil. Readers may call it.
func (t *viewTable[T]) get(key string) *T {
	if it := t.find(maphash.String(t.seed, key), key); it != nil {
		return it.value.Load()
	}
	return nil
}

// each calls f for every item until f returns false. Readers may call it; f may call all
// methods.
func (t *viewTable[T]) each(f func(*viewItem[T]) bool) {
	slots := *t.slots.Load()
	for i := range slots {
		if it := slots[i].item.Load(); it != nil && !f(it) {
			return
		}
	}
}

// item returns the item of a key that exists. If it is new, it has no value yet.
func (t *viewTable[T]) item(hash uint64, key string, clone func() string) (it *viewItem[T], known bool) {
	it = t.find(hash, key)
	if it == nil {
		if slots := *t.slots.Load(); (t.used+1)*4 > len(slots)*3 {
			t.rebuild()
		}
		it = &viewItem[T]{hash: hash, key: clone()}
		insertItem(*t.slots.Load(), it)
		t.used++
	}
	known = it.present
	if !known {
		it.present = true
		t.present++
	}
	return it, known
}

func insertItem[T any](slots []viewSlot[T], it *viewItem[T]) {
	for i := it.hash; ; i++ {
		if slot := &slots[i&uint64(len(slots)-1)].item; slot.Load() == nil {
			slot.Store(it)
			return
		}
	}
}

// set sets the value of an item and returns the old one.
func (t *viewTable[T]) set(it *viewItem[T], value *T) (old *T) {
	old = it.value.Swap(value)
	if old == nil {
		t.keys.Add(1)
	}
	return old
}

// remove removes the key of an item that exists, and returns its value.
func (t *viewTable[T]) remove(it *viewItem[T]) (old *T) {
	it.present = false
	t.present--
	if old = it.value.Swap(nil); old != nil {
		t.keys.Add(-1)
	}
	if n := len(*t.slots.Load()); n > leastViewSlots && t.present*8 < n {
		t.rebuild()
	}
	return old
}

// rebuild replaces the slots: a third of the new ones, or less, have an item. It leaves out
// deleted keys.
func (t *viewTable[T]) rebuild() {
	n := leastViewSlots
	for n < t.present*3 {
		n *= 2
	}
	t.replace(n)
}

func (t *viewTable[T]) replace(n int) {
	slots := make([]viewSlot[T], n)
	t.used = 0
	if t.slots.Load() != nil {
		t.each(func(it *viewItem[T]) bool {
			if it.present {
				insertItem(slots, it)
				t.used++
			}
			return true
		})
	}
	t.slots.Store(&slots)
}
